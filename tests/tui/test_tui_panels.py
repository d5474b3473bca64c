"""What the panels say, as text: pure functions, no app."""

import itertools
from dataclasses import replace

import pytest
import sample_views as views

from monitor.model.report import (
    Alert,
    Finding,
    Group,
    MetricRow,
    Outcome,
    Progress,
    RankRow,
    Rates,
    SlowStep,
    Straggler,
    Throughput,
    Wall,
)
from monitor.model.view import OpenWork, View
from monitor.model.wall_time import STOPPED_BY_YOU
from monitor.palettes import PALETTES, PhaseTones
from monitor.tui.drawing.answer_rows import answered
from monitor.tui.drawing.rows import Row, row_width
from monitor.tui.panels import alerts_panel, curve_panels, header, machine_panel, phases_panel, ranks_panel, steps_panel
from monitor.tui.panels.base import ViewOptions
from monitor.units import plural


def text(rows: list[Row]) -> str:
    return "\n".join("".join(part for part, _ in row) for row in rows)


def test_the_head_answers_the_first_questions(options: ViewOptions) -> None:
    shown = text(header.header(views.running(), options, 160, 8))
    for part in (
        "● RUNNING", "rl-code-rft", "step 214 of 600", "36%", "211 ok, 3 skipped (empty code generated)",
        "20.9 s/it", "last 10 steps, mean 18.2", "365 tok/s",
        "last 10 steps, mean 408", "1 h 48 min – 2 h 5 min", "1 h 6 min",
        "$2.75", "of about $7.57", "step 215: generation for 42 s",
        "Generation takes 59%", "about 1.92x faster", "one batched generate()", "typical 18.0 s",
    ):  # fmt: skip
        assert part in shown


@pytest.mark.parametrize("height", range(1, 9))
@pytest.mark.parametrize("width", [1, 8, 20, 60, 80, 120, 160])
def test_the_head_keeps_to_its_height(options: ViewOptions, width: int, height: int) -> None:
    assert len(header.header(views.replayed(), options, width, height)) <= height


def test_unknown_is_never_zero_and_takes_no_room_in_the_head(options: ViewOptions) -> None:
    view = views.waiting()
    assert ("– it/s", "", "unknown") in header.speeds(view.report)
    shown = text(header.header(view, options, 120, 8))
    assert "waiting for the first step" in shown and "–" not in shown, "no figure is told that is not known"
    assert "0 it/s" not in shown and "0.0" not in shown and "$" not in shown
    unread = text(machine_panel.machine_rows(views.waiting(), 100, 12))
    assert "no host readings yet" in unread and "0" not in unread


def test_a_known_whole_run_rate_is_not_passed_off_as_recent(options: ViewOptions) -> None:
    view = views.running()
    report = replace(view.report, throughput=Throughput(0.5, None, None, None, Rates()))
    shown = text(header.header(replace(view, report=report), options, 160, 8))
    assert "2.00 s/it" in shown and "since the first step" in shown


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome("running"), "● RUNNING"), (Outcome("finished", 0), "✔ FINISHED"),
        (Outcome("failed", 3), "✖ FAILED, exit 3"), (Outcome("killed", signal=9), "✖ KILLED by SIGKILL"),
        (Outcome("killed", 0, error=STOPPED_BY_YOU), "■ STOPPED by you"),
        (Outcome("lost"), "? LOST"), (Outcome("new\x1b state"), "? NEW"),
    ],
)  # fmt: skip
def test_states_are_told_apart(outcome: Outcome, words: str) -> None:
    assert header.state(outcome)[0].startswith(words)


def quick() -> View:
    """Three steps a second, of which the pulse of each second sees none."""
    view = replace(views.running(), open=OpenWork(step=214))
    pace = replace(view.report.throughput, recent=Rates(3.0))
    return replace(view, report=replace(view.report, throughput=pace))


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (views.running(), "step 215: generation for 42 s"),
        (views.starting(), "load models for 41 s"),
        (views.silent(), "no heartbeat for 35 s"),
        (views.replayed(), "loading history 43%"),
        (views.waiting(), "waiting for the first step"),
        (replace(views.running(), open=OpenWork()), "between steps"),
        (replace(views.from_console(), open=OpenWork()), "current activity unknown (console output only)"),
        (replace(views.running(), open=OpenWork(step=214)), None),  # the line above says it
        (replace(views.running(), open=OpenWork(step=213)), None),
        (replace(views.running(), open=OpenWork(step=814)), "step 814 ended"),
        (quick(), None),
        (
            replace(views.running(), open=OpenWork(step=214, silent_for=12.0)),
            "no heartbeat for 12 s  ·  last seen after step 214",
        ),
        (replace(views.running(), open=OpenWork(step=7, step_seconds=3.2)), "step 7: open for 3 s"),
        (
            replace(views.running(), open=OpenWork(spans=[("checkpoint", 9.0), ("upload", 4.0)])),
            "checkpoint for 9 s › upload for 4 s",
        ),
        (views.ended("failed", 3, error="ValueError: no such file"), "training failed: ValueError: no such file"),
        (views.ended("killed", signal=9), "killed by SIGKILL"),
        (views.ended("lost"), "process gone; outcome unknown"),
    ],
)
def test_what_it_does_now(view: View, words: str | None) -> None:
    shown = text([header.now(view)])
    assert shown == "" if words is None else words in shown


def test_a_short_silence_is_nothing() -> None:
    view = views.running()
    assert "silent" not in text([header.now(replace(view, open=replace(view.open, silent_for=3.0)))])


def test_reasons_for_skipped_steps_come_largest_first() -> None:
    progress = Progress(40, None, 37, 3, {"rare": 1, "usual": 2})
    assert text([header.skipped(progress)]) == "37 ok, 3 skipped (usual 2, rare 1)"
    assert header.skipped(Progress(40, None, 40, 0)) == []


def test_where_the_time_goes_accounts_for_everything(options: ViewOptions) -> None:
    shown = text(phases_panel.breakdown(views.running(), options, 64, 20))
    for part in (*views.USUAL, "other", "between steps", "59%", "wall time", "start-up 1.1%", "checkpoint"):
        assert part in shown


@pytest.mark.parametrize("width", [6, 18, 28, 38, 46, 64, 158])
@pytest.mark.parametrize("height", [1, 4, 12, 30])
def test_where_the_time_goes_keeps_to_its_place(options: ViewOptions, width: int, height: int) -> None:
    rows = phases_panel.Phases("phases").body(views.running(), options, width, height)
    assert len(rows) <= height
    if width >= 18:
        assert all(row_width(row) <= width for row in rows[: len(views.USUAL)])


def test_the_start_up_is_broken_down_while_there_is_nothing_else(options: ViewOptions) -> None:
    shown = text(phases_panel.breakdown(views.starting(), options, 60, 10))
    assert "import torch" in shown and "8.10 s" in shown
    assert "load models" in shown and "41 s …" in shown


def test_the_wall_account_names_all_its_parts(options: ViewOptions) -> None:
    rows = phases_panel.wall_account(Wall(100.0, 10.0, 70.0, {"eval": 15.0}, 4.0, 1.0), options, 120)
    words = "■ start-up 10%  ■ steps 70%  ■ eval 15%  ■ between steps 4.0%  ■ teardown 1.0%"
    assert text(rows[2:]).strip() == words
    assert row_width(rows[1]) == 118, "it ends where the numbers above it do"


def test_ranks_are_told_by_who_waits_for_whom_or_by_their_spread() -> None:
    rows = [RankRow(0, 1.2), RankRow(1, 1.0), RankRow(2, 1.4)]
    assert text([phases_panel.rank_line(rows, None)]) == " 3 ranks: median step 1.00 s – 1.40 s"
    clear = text([phases_panel.rank_line(rows, Straggler(2, 0.12, 0.13, 60))])
    assert clear == " 3 ranks: rank 2 slowest, others wait 12% of the time"
    assert phases_panel.rank_line([RankRow(0, 1.2)], None) == []


@pytest.mark.parametrize("width", [20, 40, 60, 120])
def test_a_line_a_rank(width: int) -> None:
    rows = [RankRow(0, 0.2, 0.1, 1000, 0.1, 0.5), RankRow(1, 0.2, 0.0, 1000, 0.0, 0.0), RankRow(2)]
    shown = ranks_panel.rank_rows(rows, 1, width)
    assert len(shown) == 3
    if width >= 40:
        assert all(row_width(row) <= width for row in shown)
        assert "waits 100 ms" in text(shown[:1]) and "slowest" in text(shown[1:2])
        assert "–" in text(shown[2:]) and "0%" not in text(shown[2:])
    if width == 120:
        assert abs(text(shown[:1]).count("░") - text(shown[:1]).count("▇")) <= 1
        assert "░" not in text(shown[1:2])


def test_ranks_that_wait_alike_have_bars_alike() -> None:
    waits = [0.0, *(0.1330 + 0.0002 * rank for rank in range(22))]
    rows = [RankRow(rank, 0.812 + rank * 1e-5, 0.0, 100, wait, 0.15) for rank, wait in enumerate(waits)]
    for width in range(50, 140):
        slowest, *others = text(ranks_panel.rank_rows(rows, 0, width)).split("\n")
        assert len({(row.count("░"), row.count("▇")) for row in others}) == 1, width
        assert "░" not in slowest and "waits   0 ms" in slowest, "a nothing in the unit of the others"
    assert ranks_panel.whole_cells([0.0, 3.4, 3.6, 5.2]) == [0, 4, 4, 5] and ranks_panel.whole_cells([]) == []


def test_silence_is_explained_where_the_steps_would_be(options: ViewOptions) -> None:
    for width, height in ((90, 14), (40, 20), (30, 3)):
        rows = steps_panel.chart(views.unheard(), options, width, height)
        assert len(rows) <= height and all(row_width(row) <= width for row in rows)
        assert "Still starting?" in text(rows)
        assert ("more: screen why" in text(rows)) == ("trainhooks.steps" not in text(rows))
    whole = text(steps_panel.chart(views.unheard(), options, 90, 14)).replace("\n", " ")
    assert "python -I" in whole and "env -i" in whole and "trainhooks.steps" in whole
    assert text(steps_panel.chart(views.waiting(), options, 90, 14)).strip() == "no step finished yet"


def test_figures_from_the_console_say_so_at_every_height(options: ViewOptions) -> None:
    for height in (1, 4, 6, 8):
        assert "read from the console" in text(header.header(views.from_console(), options, 80, height))
        assert "console" not in text(header.header(views.running(), options, 80, height))
    assert "read from a log" in text(header.header(views.from_console(imported=True), options, 80, 8))


def test_a_log_that_was_imported_is_not_lost(options: ViewOptions) -> None:
    view = views.from_console(imported=True)
    view = replace(view, report=replace(view.report, outcome=Outcome("lost")), open=OpenWork())
    shown = text(header.header(view, options, 100, 8))
    assert "IMPORTED LOG" in shown and "outcome unknown" in shown and "LOST" not in shown


def test_a_restart_is_what_it_does_now() -> None:
    view = replace(views.running(), open=OpenWork(spans=[("load", 3.0)], restarting=9.0))
    assert text([header.now(view)]) == "no step since the restart (9 s) › load for 3 s"
    view = replace(view, open=OpenWork(restarting=9.0))
    assert text([header.now(view)]) == "no step since the restart (9 s)"


def test_a_slow_step_reads_as_people_know_it(options: ViewOptions) -> None:
    slow = views.running().report.slow_steps[-1]
    row = alerts_panel.slow_step(slow, options)
    assert text([row]) == f"▲ {slow}"
    culprit = next(part for part in row if part[0].startswith("generation"))
    assert culprit[1] == options.phases["generation"] + " bold"


def test_alerts_come_newest_first_and_each_once(options: ViewOptions) -> None:
    view = views.running()
    shown = text(alerts_panel.entries(view, options))
    assert [line.partition(" (")[0] for line in shown.split("\n") if "Slow" in line] == [
        "▲ at 1 h 4 min  Slow step 207",
        "▲ at 40 min 41 s  Slow step 131",
        "▲ at 27 min 10 s  Slow step 88",
    ]
    assert "at 45 min 34 s  3 steps in a row did no work" in shown


def test_losses_and_notes_are_said_first(options: ViewOptions) -> None:
    view = views.running()
    report = replace(view.report, dropped=replace(view.report.dropped, events=12, lines=3))
    rows = alerts_panel.entries(replace(view, report=report, notes=["no hello has arrived"]), options)
    assert text(rows[:1]) == "! 12 events dropped by the training process; 3 lines unreadable or missing"
    assert "no hello has arrived" in text(rows[1:2])


def test_slow_steps_are_marked_above_their_columns(options: ViewOptions) -> None:
    rows = steps_panel.chart(views.running(), options, 93, 12)
    assert text(rows[:1]).count("▲") == 3
    assert "slow step" in text(rows[-2:]) and "generation" in text(rows[-2:])


def test_a_few_steps_are_drawn_wide(options: ViewOptions) -> None:
    few = views.running(3)
    assert "███" in text(steps_panel.chart(few, options, 60, 10))


def test_the_metric_people_look_for_comes_first() -> None:
    assert curve_panels.default_metric(["kl", "loss", "reward"]) == "reward"
    assert curve_panels.default_metric(["lr", "train/loss"]) == "train/loss"
    assert curve_panels.default_metric(["grad_norm"]) == "grad_norm"
    assert curve_panels.default_metric([]) is None


def test_values_that_are_not_finite_are_counted() -> None:
    assert "last nan  2 values not finite" in text([curve_panels.summary(MetricRow("nan", 1.0, 0.5, 2.0, 10, 2), 80)])


def test_of_the_bounds_of_a_metric_the_one_that_tells_more_stays_where_one_fits() -> None:
    row = MetricRow(0.5, 0.4, 0.1, 0.9, 10)
    assert text([curve_panels.summary(row, 40, name="eval/reward")]) == "last 0.5000  min 0.1000  max 0.9000"
    assert text([curve_panels.summary(row, 25, name="eval/reward")]) == "last 0.5000  max 0.9000"
    assert text([curve_panels.summary(row, 25, name="loss")]) == "last 0.5000  min 0.1000"
    assert text([curve_panels.summary(replace(row, last=0.1), 25, name="loss")]) == "last 0.1000  max 0.9000"


def test_phases_keep_their_colors() -> None:
    tones = PhaseTones()
    tones.learn(["forward", "custom"])
    before = tones["forward"], tones["custom"]
    tones.learn(["generation", "custom", "forward", "backward"])
    assert (tones["forward"], tones["custom"]) == before
    assert len({tones[name] for name in ("forward", "custom", "generation", "backward", "other", "between steps")}) == 6


@pytest.mark.parametrize("palette", PALETTES, ids=lambda palette: palette.name)
def test_palettes_are_complete(palette) -> None:
    assert len(palette.phases) == len(PALETTES[0].phases) == len(set(palette.phases))


# The head, and what gives way to what


def test_the_title_of_a_verdict_gives_way_to_the_fix() -> None:
    view = views.running()
    one, two = answered(view, 80, 2)
    assert text([one]).rstrip().endswith("each with a bat…")
    assert text([two]).startswith("▌→ Put the prompts of a step into one batched generate() call")
    assert text([two]).rstrip().endswith("~1.92x faster")
    one, two, three = answered(view, 80, 3)
    assert text([one]).rstrip().endswith("each with a") and text([two]).startswith("▌batch of one")
    assert "→ Put the prompts" in text([three])
    one, two = answered(view, 160, 2)
    assert view.verdict.title in text([one]) and text([one]).rstrip().endswith("about 1.92x faster")
    assert view.verdict.advice in text([two]) and text([one]).startswith("▌WHY SLOW")
    for width, height in itertools.product(range(1, 170), (2, 3, 4)):
        rows = answered(view, width, height)
        assert len(rows) <= height and all(row_width(row) <= width for row in rows)


def test_the_step_gives_its_place_to_a_long_badge_and_finds_another(options: ViewOptions) -> None:
    view = replace(views.running(), label="REPLAY · SIMULATED GPU · 1x 0:58/1:24")
    first, second = header.header(view, options, 60, 4)[:2]
    assert "SIMULATED GPU · 1x 0:58/1:24" in text([first]) and "step" not in text([first])
    assert text([second]).startswith(" step 214 of 600")
    first = header.header(view, options, 80, 4)[0]
    assert "……" not in text([first]) and row_width(first) == 80


def test_figures_of_one_rank_among_many_say_so(options: ViewOptions) -> None:
    shown = text(header.header(views.eight_ranks(), options, 160, 8))
    assert "rank 0: 365 tok/s" in shown and "rank 0: 0.767 samples/s" in shown, "beside the number itself"
    assert "rank 0: 365 tok/s" in text(header.header(views.eight_ranks(), options, 100, 4))
    assert "rank" not in text(header.header(views.running(), options, 160, 8))


@pytest.mark.parametrize("width", range(30, 170, 7))
def test_each_big_number_has_its_own_time_below_it(options: ViewOptions, width: int) -> None:
    view = views.eight_ranks()
    values, labels = header._tiles(view, width)
    assert row_width(values) - 3 <= width or len(values) == 1
    told = [(value.strip(), label.strip()) for (value, _), (label, _) in zip(values, labels, strict=True)][1:]
    for value, label in told:
        assert value.endswith("/s") is label.startswith("last 10 steps") or value.endswith("s/it")
    means = [label for _, label in told if ", mean " in label]
    assert width < 90 or means[0] == "last 10 steps, mean 18.2"
    assert width < 66 or "remaining (ETA)" in text([labels])


def test_what_is_to_come_is_told_in_whole_seconds_and_what_has_just_begun_without() -> None:
    view = views.running()
    soon = replace(view.report.progress, eta_seconds=9.0, eta_low=7.68, eta_high=10.4, elapsed_seconds=29.03)
    values = [value for value, _, _ in header.speeds(replace(view.report, progress=soon))]
    assert "7 s – 10 s" in values and "29 s" in values
    begun = replace(view, open=replace(view.open, phase_seconds=0.3))
    assert text([header.now(begun)]) == "step 215: generation"
    unknown = replace(soon, steps_total=None, eta_seconds=None, eta_low=None, eta_high=None)
    assert ("–", "ETA ", "ETA (total unknown)") in header.speeds(replace(view.report, progress=unknown))


@pytest.mark.parametrize(
    ("total", "left", "told"),
    [(5, 720.0, "training 3 of 5, about 12 min 0 s left for all"), (None, None, "training 3, 2 done")],
)
def test_of_several_trainings_the_header_tells_which_is_shown(
    total: int | None, left: float | None, told: str, options: ViewOptions
) -> None:
    view = views.running()
    several = Group(done=2, total=total, elapsed_seconds=1440.0, eta_seconds=left, best=None, members=[], shown=3)
    rows = header.header(replace(view, report=replace(view.report, group=several)), options, 160, 8)
    assert told in text(rows[:1])


def test_the_steps_have_a_scale_in_one_unit() -> None:
    top, labels = steps_panel.seconds_axis(1.0, 13)
    assert [label for label in labels if label] == ["1 s", "0.75 s", "0.5 s", "0.25 s", "0"]
    assert top == pytest.approx(0.25 * 13 / 3), "the foot of a row is what its label says"
    assert [label for label in steps_panel.seconds_axis(0.42, 7)[1] if label] == ["400 ms", "200 ms", "0"]
    assert all(label.endswith(" min") or label in ("", "0") for label in steps_panel.seconds_axis(150.0, 7)[1])
    assert steps_panel.seconds_axis(25.0, 2)[1] == ["15 s", "0"] and steps_panel.seconds_axis(25.0, 1)[1] == ["0"]


def slow_run(steps: list[int], seconds: float = 60.0, baseline: float = 18.0) -> View:
    """A run in which these steps were slow, each a bit slower than the one before."""
    view = views.running()
    slow = [SlowStep(step, 0, seconds + index, baseline, "generation", {"generation": seconds})
            for index, step in enumerate(steps)]  # fmt: skip
    told = [Alert(views.STARTED + 20.0 * each.step, "slow-steps", str(each), each.step, each.rank) for each in slow]
    return replace(view, report=replace(view.report, slow_steps=slow, alerts=told, findings=[]))


def test_slow_steps_in_a_row_are_one_alert(options: ViewOptions) -> None:
    view = slow_run([*range(110, 120), *range(121, 132), 200])
    single, stretch = text(alerts_panel.entries(view, options)).split("\n")
    assert "at 1 h 7 min  Slow step 200 (81.0 s)" in single
    assert "36 min 40 s to 43 min 40 s  Steps 110–131, 21 slow steps, longest 131 (80.0 s)" in stretch
    assert "generation 60.0 s" in stretch and "typical 18.0 s" in stretch and "since" not in stretch
    panel = alerts_panel.Alerts("alerts")
    panel.everything(view, options, 158)
    assert text([panel.aside(view, options)]) == "2 alerts", "at a narrow width"
    assert alerts_panel.alerts_of_steps(2, view.report.slow_steps) == ", of 22 slow steps"


@pytest.mark.parametrize(
    ("slow", "others", "words"),
    [
        ([], 1, "1 alert"), ([], 2, "2 alerts"), ([3], 0, "1 alert, a slow step"),
        ([3], 1, "2 alerts, one of them a slow step"), ([3, 9], 0, "2 alerts, all slow steps"),
        ([3, 9, 19], 1, "4 alerts, 3 of them slow steps"), ([3, 4, 5], 1, "2 alerts, one of 3 slow steps"),
        ([3, 4, 5], 0, "1 alert, of 3 slow steps"), ([3, 4, 5, 9], 1, "3 alerts, 2 of them of 4 slow steps"),
    ],
)  # fmt: skip
def test_the_title_of_the_alerts_is_no_sum(options: ViewOptions, slow: list[int], others: int, words: str) -> None:
    view = slow_run(slow)
    more = [Alert(views.STARTED + 9.0 + index, "steps-skipped", f"x{index}") for index in range(others)]
    view = replace(view, report=replace(view.report, alerts=[*view.report.alerts, *more]))
    number = len(alerts_panel.alert_entries(view, options))
    assert f"{plural(number, 'alert', 'alerts')}{alerts_panel.alerts_of_steps(number, view.report.slow_steps)}" == words


def test_an_alert_says_from_which_step_on_slow_steps_are_typical(options: ViewOptions) -> None:
    view = slow_run(list(range(110, 118)))
    values = [18.0] * 109 + [60.0] * 105
    assert "typical from step 118 on" in text(
        alerts_panel.entries(replace(view, step_seconds=views.curve(values)), options)
    )
    back = replace(view, step_seconds=views.curve(values[:117] + [18.0] * 97))
    assert "typical from" not in text(alerts_panel.entries(back, options))
    soon = replace(view, step_seconds=views.curve(values[:118]))
    assert "typical from" not in text(alerts_panel.entries(soon, options)), "one step says nothing"
    moved = replace(view.report, slow_steps=[replace(each, baseline=18.0 if each.step < 114 else 31.0)
                                             for each in view.report.slow_steps])  # fmt: skip
    assert "(18.0 s at the start, 31.0 s at the end)" in text(
        alerts_panel.entries(replace(view, report=moved), options)
    )


def test_the_gravest_stands_first_and_what_is_only_kept_as_a_line_is_counted(options: ViewOptions) -> None:
    view = slow_run([100, 150, 200])
    bad = Finding(
        code="nonfinite-loss", severity="critical", title="The loss is not finite", advice="Lower the learning rate"
    )
    news = [Alert(views.STARTED + 5.0, "nonfinite-loss", "loss is nan at step 1"), *view.report.alerts]
    report = replace(view.report, alerts=news, slow_steps=view.report.slow_steps[2:], findings=[bad])
    view = replace(view, report=report)
    lines = text(alerts_panel.Alerts("alerts").everything(view, options, 158)).split("\n")
    assert lines[0].startswith("▌ The loss is not finite") and "loss is nan" in lines[1]
    assert "Slow step 200" in lines[2] and "2 earlier slow steps, last: Slow step 150" in lines[3]
    assert len(lines) == 4
    assert "Slow step 200" in text(alerts_panel.entries(view, options)[:1]), "elsewhere by their time"
