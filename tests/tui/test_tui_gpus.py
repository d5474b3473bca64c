"""The GPUs and the host: on the overview, and on the screen of the GPUs; what holds a GPU back is told alike."""

import math
import re
from dataclasses import replace

import pytest
import sample_views as views
from by_hand import BIG, press, text
from pictures import RECORDINGS

from monitor.diagnosis.rule import gpu_evidence
from monitor.diagnosis.rules.gpu_throttle import thermal_throttle
from monitor.gpu_lines import BY_NAME
from monitor.model.view import GpuDetail
from monitor.runs.replay import open_player
from monitor.tui.drawing.rows import row_width
from monitor.tui.panels import machine_panel
from monitor.tui.screens import gpu_block
from monitor.tui.screens.gpu_block import block, title
from monitor.tui.screens.gpus_screen import Gpus, history, most_critical
from trainhooks.protocol.events import Gpu

# On the overview


def test_a_gpu_line_has_all_readings_and_what_holds_it_back() -> None:
    shown = text([machine_panel.gpu_line(views.gpu(3), 90, 7)])
    for part in ("GPU 3", "84%", "64.2/139 GiB", "71 °C", "585/700 W", "1,740 MHz", "power cap"):
        assert part in shown


def test_the_names_of_more_than_ten_gpus_stand_clear_of_what_follows() -> None:
    view = views.running(gpus=16)
    names = machine_panel.names_width(view.report.gpus)
    listed = [row for gpu in view.report.gpus for row in block(gpu, GpuDetail(), [], False, 60, 1, names)]
    for rows in (machine_panel.machine_rows(view, 60, 30), listed):
        lines = [line for line in text(rows).split("\n") if "GPU" in line]
        assert len({line.index("━") for line in lines}) == 1, "the columns stay below each other"
        assert all(line[line.index("━") - 1] == " " for line in lines)


@pytest.mark.parametrize("width", range(118, 200, 8))
def test_a_longer_bar_takes_nothing_away(width: int) -> None:
    view = views.running(gpus=8)
    gpu = view.report.gpus[0]
    shown = text(block(gpu, view.details.gpus[gpu.uuid], [], False, width, 99, 7))
    for words in ("(92% of it)", "max 1,980", "this run 58.0 GiB", "others 2.6 GiB", "slowdown at 87"):
        assert words in shown
    assert ("driver 614 MiB" in shown) == (width >= 122)


def test_what_is_normal_takes_nothings_place_and_what_costs_speed_does() -> None:
    def held(*reasons: str) -> str:
        return machine_panel.limits(replace(views.gpu(0), reasons=list(reasons)))

    assert held("idle", "application clocks", "sync boost", "display clocks", "power cap") == ""
    assert held("hardware slowdown", "hardware thermal") == "HW thermal", "the cause, not its consequence"
    assert held("hardware slowdown") == "HW slowdown" and held("0x400") == "0x400"
    shown = text([machine_panel.gpu_line(replace(views.gpu(0), reasons=["hardware thermal"]), 60, 7)])
    assert "HW thermal" in shown and "MHz" not in shown


@pytest.mark.parametrize(("number", "height"), [(1, 12), (2, 5), (8, 12), (8, 5), (16, 5)])
@pytest.mark.parametrize("width", [36, 38, 62, 78])
def test_no_gpu_is_left_out_of_the_overview(number: int, height: int, width: int) -> None:
    view = views.running(gpus=number)
    rows = machine_panel.machine_rows(view, width, height)
    shown = text(rows)
    assert all(row_width(row) <= width for row in rows)
    assert all(f"GPU {index}" in shown for index in range(number)) or f"{number} GPUs" in shown
    assert "CPU" in text(rows[:height]), "the host is in sight, however many GPUs there are"


def test_many_gpus_are_told_by_where_their_figures_lie_and_those_held_back_by_name() -> None:
    gpus = [views.gpu(index) for index in range(8)]
    shown = text(machine_panel.gpu_ranges(gpus, 60))
    assert all(part in shown for part in ("8 GPUs", "80–87% busy", "61–68 of 139 GiB", "68–75 °C", "549–612 W"))
    view = views.running(gpus=8)
    gpus[5] = replace(gpus[5], reasons=["software thermal"])
    rows = machine_panel.machine_rows(replace(view, report=replace(view.report, gpus=gpus)), 60, 5)
    assert "GPU 5" in text(rows[2:3]) and "SW thermal" in text(rows[2:3])


def test_a_gpu_without_readings_shows_dashes_only() -> None:
    bare = replace(views.gpu(0), utilization=None, memory_used=None, memory_total=None, temperature=None, power=None)
    bare = replace(bare, power_limit=None, sm_clock=None)
    for rows in ([machine_panel.gpu_line(bare, 80, 7)], machine_panel.gpu_block(bare, [], 60)):
        shown = text(rows).replace("GPU 0", "").replace("H200", "")
        assert "0" not in shown and "–" in shown


@pytest.mark.parametrize("width", [38, 46, 60, 100])
def test_the_training_stands_beside_the_host(width: int) -> None:
    shown = text(machine_panel.host_rows(views.host_row(), width))
    for part in (
        "37%",
        "training 5.1 cores",
        "42.1",
        "128 GiB",
        "training 18.2 GiB",
        "in 1.2 MiB/s",
        "read 11.9 MiB/s" if width >= 46 else "r 11.9 MiB/s  w 3.0 MiB/s",
    ):
        assert part in shown


@pytest.mark.parametrize("width", range(36, 120))
def test_the_host_is_cut_nowhere(width: int) -> None:
    assert "…" not in text(machine_panel.host_rows(views.host_row(), width))


@pytest.mark.parametrize("width", [1, 20, 38, 60, 100, 158])
def test_the_host_keeps_to_its_width(width: int) -> None:
    rows = [
        *machine_panel.host_rows(views.host_row(), width),
        *machine_panel.gpu_block(views.gpu(0), [1.0] * 9, width),
    ]
    assert all(row_width(row) <= width for row in machine_panel.host_rows(views.host_row(), width))
    assert rows


# On their screen


@pytest.mark.parametrize("number", [1, 2, 8, 16])
@pytest.mark.parametrize("size", [(160, 45), (80, 24)])
async def test_all_gpus_are_on_one_screen(app_on, screen_text, number: int, size) -> None:
    app = app_on(views.running(gpus=number))
    async with app.run_test(size=size) as pilot:
        await press(pilot, "u")
        shown = screen_text(app)
        assert all(re.search(rf"GPU {index}\b", shown) for index in range(number))
        assert "power cap" in shown or number <= 3 or size[0] < 100


async def test_a_larger_screen_tells_no_less_of_each_gpu(app_on, screen_text) -> None:
    app = app_on(views.running(gpus=8))
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "u")
        shown = screen_text(app)
        for index in range(8):
            gpu = views.gpu(index)
            assert f"{gpu.power:.0f} W of 700   {gpu.temperature:.0f} °C" in shown
        assert shown.count("typical under load 1,950") == 8 and shown.count("out 381 MiB/s") == 8


@pytest.mark.parametrize("size", [(200, 60), BIG, (120, 40)])
async def test_bars_say_over_what_time_they_go(app_on, screen_text, size) -> None:
    app = app_on(views.running(gpus=8))
    async with app.run_test(size=size) as pilot:
        await press(pilot, "u")
        shown = screen_text(app)
        bar = re.search(r"busy +([▁▂▃▄▅▆▇█]+)", shown)
        assert bar is not None and f"bars: last {len(bar[1]) - 1} s, 8 GPUs" in shown


async def test_a_bar_without_a_label_has_a_legend(app_on, screen_text) -> None:
    app = app_on(views.running(gpus=8))
    async with app.run_test(size=(60, 15)) as pilot:
        await press(pilot, "u")
        assert "━ busy, 8 GPUs" in screen_text(app)


async def test_what_is_simulated_is_never_cut_for_a_name(app_on, screen_text) -> None:
    view = views.throttled()
    gpus = [replace(gpu, reasons=["hardware slowdown", "hardware thermal"]) for gpu in view.report.gpus]
    app = app_on(replace(view, report=replace(view.report, gpus=gpus)))
    async with app.run_test(size=(66, 24)) as pilot:
        await press(pilot, "u")
        titles = [line for line in screen_text(app).split("\n") if re.search(r"GPU \d", line)]
        assert titles and all("SIMULATED" in line and "hardware thermal" in line for line in titles[1:])


@pytest.mark.parametrize("width", [58, 62, 66, 78, 118])
async def test_a_model_is_told_of_each_gpu_or_of_none_and_always_where_one_is_opened(
    app_on, screen_text, width: int
) -> None:
    app = app_on(views.throttled())
    async with app.run_test(size=(width, 24)) as pilot:
        await press(pilot, "u")
        titles = [line for line in screen_text(app).split("\n") if re.search(r"GPU \d", line) and "SIM" in line][-2:]
        assert len({"NVI" in line for line in titles}) == 1 and len(titles) == 2
        await press(pilot, "enter")
        assert "NVIDIA H200" in screen_text(app)


async def test_gpus_of_one_host_of_several_say_so(app_on, screen_text) -> None:
    app = app_on(views.many_ranks())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "u")
        assert "8 GPUs visible, 64 ranks" in screen_text(app)


def test_a_power_cap_alone_is_called_normal_where_that_fits() -> None:
    capped = replace(views.gpu(3), reasons=["power cap"])
    for width in range(30, 160):
        shown = text([title(capped, [("power cap", "muted")], False, width)])
        assert ("power cap (normal on a busy GPU)" in shown) or "normal" not in shown
        assert len(shown) <= width and ("normal" in shown) >= (width >= 70)
    hot = replace(capped, reasons=["power cap", "software thermal"])
    assert "normal" not in text([title(hot, [("power cap, software thermal", "warning")], False, 120)])


def test_the_list_begins_at_the_gpu_in_trouble() -> None:
    calm, hot = views.running(gpus=8), views.throttled()
    assert most_critical(calm) == calm.report.gpus[0].uuid, "a power cap is no trouble"
    assert most_critical(hot) == hot.report.gpus[1].uuid
    over = [replace(gpu, reasons=[]) for gpu in hot.report.gpus]
    past_held = replace(hot.details, throttle_events=hot.details.throttle_events[:1])
    assert most_critical(replace(hot, report=replace(hot.report, gpus=over), details=past_held)) == over[1].uuid
    first = over[0].uuid
    detail = hot.details.gpus[first]
    fault = replace(detail, readings=(*detail.readings, replace(detail.readings[-1], xid=79)))
    assert most_critical(replace(hot, details=replace(hot.details, gpus={**hot.details.gpus, first: fault}))) == first
    assert most_critical(views.running(gpus=0)) is None


async def test_the_list_of_gpus_leads_nobody_elsewhere(app_on, screen_text) -> None:
    app = app_on(views.running(gpus=2))
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "u")
        assert "▶ GPU 0" in screen_text(app)
        app_on.feed.push(views.throttled())
        await pilot.pause()
        assert "▶ GPU 0" in screen_text(app)
        await press(pilot, "escape", "u")
        assert "▶ GPU 1" in screen_text(app)


@pytest.mark.parametrize(("size", "charts"), [((200, 60), 4), (BIG, 4), ((120, 40), 4), ((80, 40), 2), ((80, 24), 0)])
async def test_one_gpu_opened_shows_its_past_where_there_is_room(app_on, screen_text, size, charts: int) -> None:
    app = app_on(views.running(gpus=8))
    async with app.run_test(size=size) as pilot:
        await press(pilot, "u", "enter")
        shown = screen_text(app)
        assert shown.count("newest") == charts
        assert ("clock, MHz" in shown) == (charts > 0) and ("memory, GiB" in shown) == (charts > 3)


def test_the_past_fills_its_width_and_leaves_out_what_the_driver_does_not_tell() -> None:
    readings = [Gpu("node", index, float(index), "GPU-0", 0, "H200", sm_clock=1000 + index) for index in range(240)]
    gpu = views.gpu(0)
    rows = history(gpu, GpuDetail(tuple(readings)), 200, 40)
    shown = text(rows)
    assert len(rows) <= 40 and all(row_width(row) <= 200 for row in rows)
    assert "GPU 0 in the last 3 min 59 s   240 readings" in shown and shown.count("not reported by the driver") == 3
    assert max(len(line.split("│")[1].rstrip()) for line in shown.split("\n") if "│" in line) > 80
    assert (
        history(gpu, GpuDetail(tuple(readings[:1])), 200, 40) == [] == history(gpu, GpuDetail(tuple(readings)), 200, 9)
    )


@pytest.mark.parametrize(
    ("number", "size", "charts"), [(1, BIG, 4), (2, (120, 40), 4), (8, (200, 60), 0), (1, (80, 24), 1)]
)
async def test_few_gpus_leave_room_for_the_past_of_the_chosen_one(
    app_on, screen_text, number: int, size, charts: int
) -> None:
    app = app_on(views.running(gpus=number))
    async with app.run_test(size=size) as pilot:
        await press(pilot, "u", "end", *["down"] * number)
        shown = screen_text(app)
        assert shown.count("newest") == charts
        assert (f"GPU {number - 1} in the last" in shown) == (charts > 0)


async def test_one_gpu_opened_tells_reasons_in_words_and_whose_processes(app_on, screen_text) -> None:
    app = app_on(views.throttled())
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "u", "down", "enter")
        shown = screen_text(app)
        meaning = BY_NAME["hardware slowdown"].meaning[:30]
        for words in ("SIMULATED", meaning, "typical under load 1,950", "1,980 → 1,290 MHz",
                      "this run", "other", "jupyter", "slowdown at 87", "PCIe 5 x16"):  # fmt: skip
            assert words in shown


@pytest.mark.parametrize(
    ("seconds", "now", "over"),
    [
        (40.0, "hardware slowdown, hardware thermal", False),
        (58.0, "hardware thermal until 7 s ago", True),
        (70.0, "no throttling", True),
        (math.inf, "no throttling at the end", True),
    ],
)
async def test_finding_and_gpu_tell_the_same(app_on, screen_text, seconds, now: str, over: bool) -> None:
    player = open_player(str(RECORDINGS / "throttle-SIMULATED-gpu.jsonl"))
    while not player.play_to(player.now - player.elapsed + seconds):
        pass
    view = player.view()
    (finding,) = [finding for finding in view.report.findings if finding.code == "thermal-throttle"]
    assert finding.over is over
    promised = not over or view.report.outcome.state != "running"
    assert (finding.recoverable is not None) is promised, "the steps to come gain nothing from what is over"
    app = app_on(view)
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "u")
        (line,) = [line for line in screen_text(app).split("\n") if "GPU 1 " in line and "NVIDIA" in line]
        assert line.rstrip().endswith(now)
        await press(pilot, "escape", "w")
        assert ("over: cost about " in screen_text(app)) is not promised, "and that is said in the list"
        assert ("x faster" in screen_text(app)) is promised


def test_an_episode_that_the_end_cut_off_lasted_until_the_end() -> None:
    player = open_player(str(RECORDINGS / "throttle-SIMULATED-gpu.jsonl"))
    player.play_to(player.now - player.elapsed + 40.0, 60.0)
    state = player.state
    evidence = gpu_evidence(state.throttles, state.main.timelines, 40.0, over=True)
    finding = thermal_throttle(evidence)
    assert finding is not None and finding.over


async def test_no_gpu_says_why_and_what_to_do(app_on, screen_text) -> None:
    app = app_on(views.running(gpus=0))
    async with app.run_test(size=BIG) as pilot:
        await press(pilot, "u")
        assert "libnvidia-ml.so.1 was not found" in screen_text(app) and "trainmon doctor" in screen_text(app)
    assert Gpus.screen_name == "gpus"


def test_the_past_of_a_gpu_is_no_picture_of_noise_and_tells_its_limits() -> None:
    view = views.running()
    [gpu] = view.report.gpus
    shown = text(history(gpu, view.details.gpus[gpu.uuid], 158, 30))
    for words in ("max 1,980", "limit 700", "slowdown at 87", "of 139"):
        assert words in shown
    assert not re.search(r"\d\.\d ┤", shown), "round labels"


def _reading(second: int, **figures: object) -> Gpu:
    return Gpu(producer="node", seq=second, t=float(second), uuid="GPU-0", index=0, **figures)  # type: ignore[arg-type]


def test_what_is_read_rarely_stays_in_sight_between_two_looks() -> None:
    found = [(812, "python3", 50 * 2**30, True), (4242, "vllm", 4 * 2**30, False)]
    looked = _reading(1, processes=found, users=["ada", "bob"], temperature_max=87.0, memory_reserved=2**30)
    detail = GpuDetail((looked, *(_reading(second, temperature=86.0) for second in range(2, 9))))
    mine, other = (text([row]) for row in gpu_block.processes(detail, 100))
    assert all(part in mine for part in ("812", "this run", "ada", "50.0 GiB", "python3"))
    assert all(part in other for part in ("4242", "other", "bob", "4.0 GiB", "vllm"))
    shown = replace(views.gpu(0), temperature=86.0)
    assert "slowdown at 87" in text([gpu_block.power(shown, detail, 20, 150)])
    assert ("86 °C", "warning bold") in gpu_block.power(shown, detail, 20, 150)
    assert dict(gpu_block.split(detail))["others"] == 4 * 2**30


def test_processes_without_a_known_user_have_no_column_for_it() -> None:
    detail = GpuDetail((_reading(1, processes=[(812, "python3", None, True)]),))
    assert text(gpu_block.processes(detail, 100)).split() == ["812", "this", "run", "–", "python3"]


def test_a_busy_gpu_below_its_clock_is_told_by_color_and_an_idle_one_is_not() -> None:
    busy = [_reading(second, utilization=97.0, sm_clock=1980 if second < 5 else 1320) for second in range(10)]
    idle = [_reading(second, utilization=0.0, sm_clock=345) for second in range(10, 15)]
    row = gpu_block.clock(views.gpu(0), GpuDetail((*busy, *idle), reference=1980), 15, 100)
    cells = [(len(part), tone) for part, tone in row[1:] if set(part) <= set("▁▂▃▄▅▆▇█")]
    assert cells == [(5, "accent"), (5, "warning"), (5, "accent")]
    load = gpu_block.busy(views.gpu(0), GpuDetail((*busy, *idle)), 15)
    assert [(len(part), tone) for part, tone in load if set(part) <= set("▁▂▃▄▅▆▇█")] == [(10, "good"), (5, "muted")]
