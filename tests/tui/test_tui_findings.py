"""Why is it slow: the findings with their pages, what to try, and the log of alerts, on a screen of their own."""

from dataclasses import replace

import pytest
import sample_views as views
from by_hand import BIG, press, text

from monitor.diagnosis.explain import read_page
from monitor.model.report import Finding, Report, Suggestion
from monitor.model.view import View
from monitor.tui.drawing.rows import row_width
from monitor.tui.screens.findings_screen import below, finding_rows, page_rows, try_rows


async def test_a_finding_opens_its_page_and_alerts_tell_when_they_came_and_went(app_on, screen_text) -> None:
    app = app_on(views.throttled())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "w")
        shown = screen_text(app)
        assert "about 1.92x faster   warning" in shown and "12 s until" not in shown
        assert "■ 36 min 51 s to 45 min 32 s  GPU 1 hardware thermal, 1,980 → 1,290 MHz, steps +21%" in shown
        assert "● at 45 min 34 s  3 steps in a row did no work" in shown
        await press(pilot, "enter")
        assert read_page("sequential-generation").line[:60] in screen_text(app)
        await press(pilot, "escape")
        assert "Alerts, newest first" in screen_text(app)


async def test_what_to_try_stands_apart_from_what_was_measured(app_on, screen_text) -> None:
    view = views.running()
    idea = Suggestion(text="Try a fused optimizer", memory="none", because="optimizer steps take 9% [/b]")
    dear = replace(idea, text="Try a larger batch", memory="more, with the batch")
    app = app_on(replace(view, report=replace(view.report, to_try=[idea, dear])))
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "w")
        shown = screen_text(app)
        assert "To try (not findings)" in shown
        assert "Try a fused optimizer  optimizer steps take 9% [/b]" in shown and "memory: none" not in shown
        assert "[/b]  memory: more, with the batch" in shown
        assert all(
            "memory: more, with the batch" in text(try_rows(dear, True, False, width)) for width in range(36, 120)
        )
        lines = [line.strip() for line in shown.split("\n")]
        assert lines[lines.index("─ Alerts, newest first") - 1] == ""


@pytest.mark.parametrize("size", [BIG, (80, 24)])
async def test_a_verdict_that_is_no_finding_says_what_to_try_first(app_on, screen_text, size) -> None:
    view = views.running()
    idea = Suggestion(text="Try a fused optimizer", memory="none", because="optimizer steps take 9%")
    none = Finding(code="none", severity="info", title="62% of step time is generation")
    app = app_on(replace(view, verdict=none, report=replace(view.report, to_try=[idea], findings=[])))
    async with app.run_test(size=size):
        shown = screen_text(app)
        assert "62% of step time is generation" in shown and "→ Try a fused optimizer" in shown


@pytest.mark.parametrize(("size", "gain"), [(BIG, "about 1.92x faster"), ((60, 40), "~1.92x ·")])
async def test_gain_and_severity_stand_below_each_other(app_on, screen_text, size, gain: str) -> None:
    view = views.running()
    found = [replace(view.verdict, code=f"{each}-one", severity=each) for each in ("critical", "warning", "info")]
    app = app_on(replace(view, report=replace(view.report, findings=found)))
    async with app.run_test(size=size) as pilot:
        await press(pilot, "w")
        lines = [line.rstrip() for line in screen_text(app).split("\n") if "▌" in line or "▶" in line][-3:]
    assert [line.split()[-1] for line in lines] == ["CRITICAL", "warning", "info"]
    assert all(gain in line for line in lines) and len({len(line) for line in lines}) == 1


async def test_why_steps_were_skipped_is_not_told_by_every_head(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=BIG) as pilot:
        assert "3 skipped (empty code generated)" in screen_text(app)
        await press(pilot, "b")
        assert "211 ok, 3 skipped" in screen_text(app) and "empty code" not in screen_text(app)
        await press(pilot, "w")
        assert "did no work (empty code generated)" in screen_text(app)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_long_title_goes_on_over_the_whole_width(width: int) -> None:
    finding = views.running().verdict
    rows = finding_rows(finding, width, True)
    shown = ["".join(part for part, _ in row) for row in rows]
    assert all(row_width(row) <= width for row in rows)
    title = shown[: next(at for at, line in enumerate(shown) if line.startswith("   "))]
    words = " ".join(title)
    for beside in ("about 1.92x", "~1.92x ·", "faster", "warning", "▶"):
        words = words.replace(beside, "")
    assert words.split() == finding.title.split()
    assert width != 80 or len(title) == 2


async def test_an_alert_that_is_not_there_says_so_when_it_is_opened(app_on, screen_text) -> None:
    view = views.running(5)
    report = replace(view.report, findings=[], alerts=[], slow_steps=[])
    app = app_on(replace(view, report=report, notes=[]))
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "w", "end", "enter")
        assert "none so far: slow steps, throttled GPUs" in screen_text(app)


async def test_the_page_of_the_chosen_finding_stands_below_a_short_list(app_on, screen_text) -> None:
    view = views.running()
    app = app_on(view)
    advice = read_page(view.verdict.code).sections[2][1].split("\n")[0].replace("`", "")[:40]
    async with app.run_test(size=(160, 90)) as pilot:
        await press(pilot, "w")
        assert "About sequential-generation" in screen_text(app) and advice in screen_text(app)
        await press(pilot, "end")
        assert "About sequential" not in screen_text(app), "an alert is chosen"
    async with app_on(view).run_test(size=(80, 24)) as pilot:
        await press(pilot, "w")
        assert "About sequential" not in screen_text(pilot.app), "not even its beginning: Enter: full page"


@pytest.mark.parametrize("room", range(4, 60))
def test_as_much_of_a_page_as_has_room_in_whole_sections(room: int) -> None:
    code = "sequential-generation"
    rows = below(code, 118, room)
    shown = "\n".join("".join(part for part, _ in row) for row in rows)
    whole = ["".join(part for part, _ in row) for row in page_rows(read_page(code), 116)][1:]
    assert len(rows) <= room and all(row_width(row) <= 118 for row in rows)
    if rows:
        part = shown.split("\n")[2:]
        assert part == whole[: len(part)] and ("Enter: full page" in shown) == (len(part) < len(whole))
        assert len(part) == len(whole) or not whole[len(part)], "no section is cut"
    else:
        assert room < 8, "where a section has room it is there"


@pytest.mark.parametrize("size", [BIG, (80, 40)])
async def test_the_verdict_stands_on_the_screen_once_also_where_it_is_no_finding(app_on, screen_text, size) -> None:
    view = views.running()
    where = Finding(code="none", severity="info", title="59% of step time is generation")
    for shown in (view, replace(view, verdict=where), replace(view, verdict=where, report=bare(view))):
        app = app_on(shown)
        async with app.run_test(size=size) as pilot:
            await press(pilot, "w")
            assert screen_text(app).count(shown.verdict.title[:28]) == 1
            assert "─ About this verdict" in screen_text(app) or shown is view or size != BIG
            assert (" verdict" in screen_text(app).split(shown.verdict.title[:28])[1][:140]) == (shown is not view)
            await press(pilot, "enter")
            assert screen_text(app).count(shown.verdict.title[:28]) == 1
            await press(pilot, "escape", "s")
            assert shown.verdict.title[:28] in screen_text(app)


def bare(view: View) -> Report:
    return replace(view.report, findings=[])


async def test_a_code_without_a_page_opens_what_there_is(app_on, screen_text) -> None:
    view = views.running()
    odd = Finding(
        code="my-own-rule", severity="info", title="Something of mine", evidence=["evidence"], advice="advice"
    )
    app = app_on(replace(view, report=replace(view.report, findings=[odd]), verdict=odd))
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "w", "enter")
        assert "Something of mine" in screen_text(app)


async def test_a_finding_higher_than_the_screen_begins_at_its_begin(app_on, screen_text) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(60, 12)) as pilot:
        await press(pilot, "w")
        assert "▶" in screen_text(app)
        await press(pilot, "down")
        assert "▶" in screen_text(app)
