"""`trainmon report --html`: one page that loads nothing, runs nothing foreign and stays small, in a browser too."""

from __future__ import annotations

import hashlib
import html
import json
import re
import shutil
import subprocess
import threading
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from monitor.diagnosis.answer import answer
from monitor.model.comparison.compare import Side, compare_runs
from monitor.model.report import Alert, Finding, MetricRow, Suggestion
from monitor.model.steps.series import Curve
from monitor.model.view import View
from monitor.reports import card, html_report
from monitor.reports.html_charts import Html, escaped, line_chart, stack, tag
from monitor.runs.follow import load
from monitor.runs.replay import recorded
from tests.bench.journals import write_run
from tests.fuzz.targets import clean_text
from tests.launch.conftest import State
from tests.model.conftest import Story
from tests.model.device_stories import hf_trainer
from tests.security import hostile
from trainhooks.protocol.encoding import encoder, to_dict
from trainhooks.protocol.events import Exit

RECORDINGS = sorted((Path(__file__).parents[2] / "demo" / "recordings").glob("*.jsonl"))
MEGABYTE = 1_000_000
encode = encoder()


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state")


def parsed(page: str) -> Element:
    """The page as a tree: it is well-formed, so that no reader sees another structure."""
    head, _, rest = page.partition("\n")
    assert head == "<!DOCTYPE html>"
    return ElementTree.fromstring(rest)


def words(root: Element) -> str:
    """What a person reads, pictures with what they say where one points."""
    texts = [text for each in root.iter() if each.tag not in ("script", "style") for text in (each.text, each.tail)]
    return " ".join(" ".join(filter(None, texts)).split())


def told(path: Path, story: Story) -> View:
    story.bye().tell(Exit, exit_code=0)
    path.write_bytes(b"".join(encode(to_dict(event)) + b"\n" for event in sorted(story.events, key=lambda e: e.t)))
    return recorded(path)


LOADING = {"src", "href", "srcset", "action", "data", "poster", "style", "background"}
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "script", "body", "header", "section", "article", "h1", "h2", "h3"),
    *("p", "b", "i", "span", "code", "ul", "ol", "li", "div", "figure", "figcaption", "details", "summary"),
    *("table", "tr", "th", "td", "svg", "path", "rect", "g"),
}


def harmless(page: str) -> Element:
    """Check that the page holds its own elements only, none of which loads or runs anything but its own script."""
    root = parsed(page)
    for each in root.iter():
        assert each.tag in ELEMENTS, each.tag
        assert not LOADING & set(each.attrib) and not any(name.startswith("on") for name in each.attrib), each.attrib
    (script,), (style,) = root.iter("script"), root.iter("style")
    assert (script.text, style.text) == (html_report.SCRIPT, html_report.STYLE)
    assert "url(" not in style.text and "@import" not in style.text and "http" not in script.text + style.text
    (policy,) = (each.attrib["content"] for each in root.iter("meta") if "http-equiv" in each.attrib)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == rules.pop("base-uri") == rules.pop("form-action") == "'none'"
    for name, text in (("script-src", script.text), ("style-src", style.text)):
        assert rules.pop(name) == f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert not rules
    clean_text(page)
    return root


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_is_told_with_the_words_of_the_card(path: Path) -> None:
    view = recorded(path)
    page = html_report.page(view)
    shown = words(harmless(page))
    said = answer(view.report, view.verdict)
    for line in (said.heading, said.title, *said.evidence, *said.to_do, said.gain):
        assert " ".join(line.split()) in shown
    for finding in view.report.findings:
        assert all(" ".join(line.split()) in shown for line in (finding.title, *finding.evidence, finding.advice))
    assert all(" ".join(fact.split()) in shown for row in card.facts(view) for fact in row)
    assert all(row.name in shown for row in view.report.phases) and "Wall time" in shown and "REPLAY" in shown
    assert len(page.encode()) < MEGABYTE


@pytest.mark.parametrize("source", ["hooks", "console"])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_run_of_few_steps_is_told_too(tmp_path: Path, steps: int, source: str) -> None:
    story = Story(source=source)
    for _ in range(steps):
        story.step(forward=0.1, other=0.1)
    view = told(tmp_path / "run.jsonl", story.wait(1.0))
    shown = words(harmless(html_report.page(view)))
    assert view.verdict.title in shown and ("Step time by phase" in shown) == (steps > 0)


def test_an_only_step_that_is_called_0_has_a_timeline(tmp_path: Path) -> None:
    story = Story()
    story.step_with({"index": 0}, forward=0.1, other=0.1)
    shown = words(harmless(html_report.page(told(tmp_path / "run.jsonl", story.wait(1.0)))))
    assert "Step time by phase" in shown


def test_a_throttled_gpu_has_its_events_in_the_timeline_and_in_its_clock() -> None:
    view = recorded(next(path for path in RECORDINGS if "throttle" in path.stem))
    root = harmless(html_report.page(view))
    shown = words(root)
    assert "Throttle events" in shown and view.details.throttle_events[0].line() in shown and "GPU throttled" in shown
    over = next(each for each in root.iter("path") if each.get("class") == "over")
    assert over.get("d") and any(each.get("class") == "held" for each in root.iter("rect"))


# The pictures


def test_the_layers_add_up_to_the_steps(tmp_path: Path) -> None:
    story = Story()
    for index in range(3000):
        story.step(forward=0.02, backward=0.03, other=0.01, **({"checkpoint": 2.0} if index % 300 == 150 else {}))
    view = told(tmp_path / "run.jsonl", story)
    shown = stack(view)
    assert shown is not None and shown.width > 1 and (shown.first, shown.end) == (1, 3000)
    assert shown.names == ["forward", "backward", "checkpoint", "other"]
    curve = view.step_seconds
    for first, bucket in list(shown.buckets.items())[1:-1]:
        whole = curve.mean[list(curve.x).index(first)]
        assert sum(bucket.values()) == pytest.approx(whole, rel=0.01), (
            "a seldom phase is not stacked as if in each step"
        )


def test_phases_by_the_clock_of_the_gpu_are_stacked_by_it(tmp_path: Path) -> None:
    view = told(tmp_path / "gpt2.jsonl", hf_trainer())
    shown = stack(view)
    assert shown is not None and shown.clock == "GPU clock"
    step = sum(row.mean * row.count for row in view.report.phases) / max(row.count for row in view.report.phases)
    middle = sorted(sum(bucket.values()) for bucket in shown.buckets.values())[len(shown.buckets) // 2]
    assert middle == pytest.approx(step, rel=0.1)
    assert "Step time by phase, GPU clock" in words(harmless(html_report.page(view)))


@pytest.mark.parametrize(
    "values",
    [
        [1.0],
        [0.0] * 5,
        [float("nan")] * 4 + [1.0, 2.0],
        [1.0, float("nan"), 3.0],
        [1.7e308, -1.7e308] * 8,
        [5e-324, 1e-323],
        [float(n) for n in range(512)],
    ],
)
def test_a_line_stays_within_its_picture(values: list[float]) -> None:
    drawn = line_chart(Curve([float(n) for n in range(len(values))], values, values, values))
    assert drawn is not None and drawn.low < drawn.high
    for each in ElementTree.fromstring(drawn.picture).iter("path"):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+(?:e[+-]?\d+)?|nan|inf", each.attrib["d"])]
        assert numbers and all(0.0 <= number <= 1000.0 for number in numbers), each.attrib["d"][:200]


def test_no_line_where_nothing_is_known() -> None:
    assert line_chart(Curve()) is None
    assert line_chart(Curve([1.0, 2.0], *[[float("nan")] * 2] * 3)) is None


def test_one_outlier_does_not_flatten_a_line() -> None:
    values = [1.0 + 0.1 * (n % 7) for n in range(100)]
    values[0] = 1e6
    drawn = line_chart(Curve([float(n) for n in range(100)], values, values, values))
    assert drawn is not None and drawn.high < 10.0


# Foreign text

NAMES = (
    "<script>document.title='EVIL'</script>",
    "\"><img src=x onerror=document.title='EVIL'>",
    "'><svg/onload=document.title='EVIL'>",
    "</style></title></script><iframe src=//{home}/frame>",
    "&lt;b&gt; &amp; ]]> <!-- \x1b]52;c;aGk=\x07 \u202e\x9b31m",
    "javascript:fetch('//{home}/fetch')",
)


def evil(tmp_path: Path, home: str = "127.0.0.1:9") -> View:
    """A run with such names wherever a program names something."""
    names = [name.replace("{home}", home) for name in NAMES]
    story = Story()
    for index in range(40):
        metrics = dict.fromkeys(names, 0.1 * index)
        story.step_with({"metrics": metrics, "role": names[0], "stage": names[1]}, **dict.fromkeys(names, 0.01))
        story.span(names[2], 0.1)
    view = told(tmp_path / "run.jsonl", story)
    report = view.report
    for index, name in enumerate(names):
        found = Finding(code=name, severity=name, title=name, evidence=[name], advice=name)
        report.findings.append(found)
        report.metrics.setdefault(f"{index}{name}", MetricRow(last=name))
        report.to_try.append(Suggestion(text=name, memory=name, because=name))
        report.alerts.append(Alert(time=None, code="restart", text=name))
    report.run.name = report.run.id = report.run.host = report.outcome.error = names[1]
    report.run.command = list(names)
    return replace(view, verdict=report.findings[-1], label=names[1])


def test_no_name_of_a_program_becomes_markup(tmp_path: Path) -> None:
    page = html_report.page(evil(tmp_path))
    shown = words(harmless(page))
    for name in NAMES[:4]:
        assert name.replace("{home}", "127.0.0.1:9")[:20] in shown, "it is shown as it is written"


def test_nor_does_any_text_of_a_hostile_journal(tmp_path: Path) -> None:
    view = load(hostile.write(tmp_path / "runs" / "a"))
    assert hostile.MARK in words(harmless(html_report.page(view)))
    row = compare_runs(Side(view.report, view.loop), Side(view.report, view.loop))
    assert "Comparison" in words(harmless(html_report.page(view, row)))


def test_what_is_no_markup_is_escaped_once() -> None:
    assert escaped("<a> & \"b\" 'c'") == "&lt;a&gt; &amp; &quot;b&quot; &#x27;c&#x27;"
    assert tag("p", Html("<b></b>"), "<b>", class_='"x"') == '<p class="&quot;x&quot;"><b></b>&lt;b&gt;</p>'
    assert tag("p", hidden="", title=None) == '<p hidden=""></p>'


# Size


def test_a_long_journal_makes_a_small_page(tmp_path: Path) -> None:
    page = html_report.page(load(write_run(tmp_path, 100_000)))
    layers = [each.attrib for each in harmless(page).iter("path") if each.get("class", "").startswith("phase")]
    assert len(layers) == 5 and all(each["d"].endswith("H1000V240Z") for each in layers), "no layer breaks off"
    assert "100,000" in page and len(page.encode()) < MEGABYTE / 2


def test_so_does_as_much_as_a_view_can_hold(tmp_path: Path) -> None:
    view = evil(tmp_path)
    x = [float(2000 * bucket) for bucket in range(512)]
    mean = [1.23456789 + bucket % 7 for bucket in range(512)]
    full = Curve(x, mean, mean, [2 * value for value in mean], 2000, 1_024_000.0, [2000.0] * 512)
    names = [f"{number:03}" + "<" * 125 for number in range(2000)]
    view.report.metrics = {name: MetricRow(last=1.0, mean=1.0, min=0.0, max=1.0, count=9) for name in names}
    view = replace(
        view,
        metrics=dict.fromkeys(names, full),
        host_step_seconds=full,
        host_phase_seconds=dict.fromkeys(names[:200], full),
    )
    page = html_report.page(view)
    harmless(page)
    assert len(page.encode()) < MEGABYTE


# The command


def test_the_page_is_written_to_a_file_or_to_stdout(state: State, tmp_path: Path) -> None:
    recording, file = str(RECORDINGS[1]), tmp_path / "page.html"
    done = state.call("report", recording, "--html", str(file))
    assert (done.returncode, done.stdout) == (0, b"") and str(file) in done.stderr.decode()
    done = state.call("report", recording, "--html", "-")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == file.read_bytes()
    harmless(done.stdout.decode())


def test_with_another_run_the_page_compares(state: State) -> None:
    done = state.call("report", str(RECORDINGS[0]), "--html", "-", "--against", str(RECORDINGS[1]))
    compared = state.call("compare", str(RECORDINGS[1]), str(RECORDINGS[0]))
    shown = words(harmless(done.stdout.decode()))
    assert " ".join(compared.stdout.decode().splitlines()[0].split()) in shown


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--html", "{home}"), "is a directory"),
        (("--html", "{home}/none/page.html"), "No such file or directory"),
        (("--html", "/dev/full"), "No space left"),
        (("--html", "-", "--json"), "one at a time"),
        (("--against", "last"), "--against goes with --html"),
    ],
)
def test_what_cannot_be_written_is_one_line(state: State, tmp_path: Path, given: tuple[str, ...], says: str) -> None:
    done = state.call("report", str(RECORDINGS[1]), *(word.replace("{home}", str(tmp_path)) for word in given))
    (line,) = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout) == (2, b"") and says in line


# In a browser

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
in_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on PATH: apt-get install chromium, or google-chrome"
)


class Asked(HTTPServer):
    """A server that hands out pages by their paths, and notes every other path that a browser asks it for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: dict[str, str] = {}
        self.asked: list[str] = []

    @property
    def home(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Asked

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path)
        if page is None:
            self.server.asked.append(self.path)
        self.send_response(404 if page is None else 200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write((page or "").encode())

    def log_message(self, *_: object) -> None:
        """Be silent."""


@pytest.fixture
def server() -> Iterator[Asked]:
    with Asked() as served:
        thread = threading.Thread(target=served.serve_forever, daemon=True)
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def dom(url: str, tmp_path: Path, *options: str) -> str:
    """What a headless Chromium makes of a page, as markup."""
    assert CHROMIUM is not None
    common = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--virtual-time-budget=2000")
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [CHROMIUM, *common, profile, *options, "--dump-dom", url], capture_output=True, timeout=100, check=True
    )
    return done.stdout.decode()


def title(page: str) -> str:
    found = re.search(r"<title>(.*?)</title>", page, re.DOTALL)
    assert found
    return html.unescape(found[1])


@in_chromium
def test_its_script_runs_and_nothing_else_does(server: Asked, tmp_path: Path) -> None:
    page = html_report.page(evil(tmp_path, server.home))
    server.pages["/page"] = page
    made = dom(f"http://{server.home}/page", tmp_path)
    assert title(made) == title(page), "no name has run"
    assert 'class="hint" hidden' in page and 'class="hint" hidden' not in made, "the page's own script has"
    assert server.asked == []


@in_chromium
def test_nor_if_a_name_had_become_markup(server: Asked, tmp_path: Path) -> None:
    page = html_report.page(evil(tmp_path, server.home))
    injected = f"""<script>document.title="EVIL"</script><img src="http://{server.home}/image">
        <p style="background:url(http://{server.home}/style)" onclick="0">x</p>
        <script src="http://{server.home}/script"></script><link rel="stylesheet" href="http://{server.home}/css"/>
        <iframe src="http://{server.home}/frame"></iframe>"""
    server.pages["/page"] = page.replace("<header>", f"{injected}<header>", 1)
    made = dom(f"http://{server.home}/page", tmp_path)
    assert "/image" in made and title(made) == title(page)
    assert server.asked == [], "the policy of the page lets nothing be loaded"


@in_chromium
def test_dragging_over_the_timeline_enlarges_a_part_of_it(server: Asked, tmp_path: Path) -> None:
    server.pages["/page"] = html_report.page(recorded(RECORDINGS[0]))
    server.pages["/drag"] = """<!DOCTYPE html><title>no</title><iframe src="/page" width="1280" height="900"></iframe>
        <script>onload = () => {
            const inside = document.querySelector("iframe").contentWindow, found = [];
            const chart = inside.document.getElementById("timeline"), place = chart.getBoundingClientRect();
            chart.setPointerCapture = () => {};
            const at = (type, part) => chart.dispatchEvent(
                new inside.PointerEvent(type, {clientX: place.left + part * place.width}));
            const ends = () => [...chart.parentNode.querySelectorAll(".ends span")].map(each => each.textContent);
            at("pointerdown", 0.75); at("pointermove", 0.5); at("pointerup", 0.25); found.push(ends());
            at("pointerdown", 0.5); at("pointerup", 0.505); found.push(ends());
            chart.dispatchEvent(new inside.Event("dblclick")); found.push(ends());
            document.title = JSON.stringify(found);
        }</script>"""
    dragged, clicked, whole = json.loads(title(dom(f"http://{server.home}/drag", tmp_path)))
    assert (dragged[0], dragged[2]) == ("step 38", "113") and clicked == dragged, "a click is no stretch"
    assert (whole[0], whole[2]) == ("step 1", "150")


@in_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_a_phone_and_a_screen(server: Asked, tmp_path: Path, width: int) -> None:
    views = [recorded(path) for path in RECORDINGS] + [evil(tmp_path, server.home)]
    server.pages |= {f"/{number}": html_report.page(view) for number, view in enumerate(views)}
    frames = "".join(f'<iframe src="/{number}" width="{width}" height="900"></iframe>' for number in range(len(views)))
    server.pages["/frames"] = f"""<!DOCTYPE html><title>no</title>{frames}<script>onload = () => {{
        const roots = [...document.querySelectorAll("iframe")].map(each => each.contentDocument.documentElement);
        document.title = roots.map(root => root.scrollWidth + ":" + root.clientWidth).join(" ");
    }}</script>"""
    sizes = title(dom(f"http://{server.home}/frames", tmp_path)).split()
    assert len(sizes) == len(views)
    for needs, has in (size.split(":") for size in sizes):
        assert int(needs) <= int(has) <= width
