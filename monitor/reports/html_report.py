"""The report of a run as one page for a browser: it loads nothing from elsewhere, and is readable without its script.

Its policy, in the page itself, forbids the browser whatever the page does not hold; the style and the script are named
by their hashes. What the program printed is not in it: such a page is passed on.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Mapping

from monitor.diagnosis.answer import MAX_TO_TRY, answer
from monitor.diagnosis.explain import gain_line
from monitor.model.comparison.compare import Comparison
from monitor.model.device.throttle_watch import ThrottleEvent
from monitor.model.report import Finding, Report
from monitor.model.steps.series import Curve
from monitor.model.view import View
from monitor.palettes import BETWEEN, MIDNIGHT, PAPER, STARTUP, STEPS, TEARDOWN, Palette, PhaseTones
from monitor.reports import card, comparison, run_text
from monitor.reports.gpu_sections import gpus
from monitor.reports.html_charts import HEIGHT, WIDTH, Chart, Html, joined, line_chart, stack, tag, timeline
from monitor.reports.listings import Section
from monitor.reports.time_sections import wall
from monitor.units import age, duration, number, share

MAX_CHARTS = 24  # of metrics
MAX_GPU_CHARTS = 8
MAX_EVENTS = 40  # throttle events
HEAD_ROWS = ("Command", "Tags", "Where")  # of the full account: what the card does not say


def page(view: View, compared: Comparison | None = None) -> str:
    """Return the page, under a megabyte whatever the length of the run.

    Args:
        compared: this run against an earlier one.
    """
    report = view.report
    tones = PhaseTones()
    tones.learn([*view.phase_seconds, *(row.name for row in (*report.phases, *report.host_phases)), *report.wall.spans])
    parts = [_card(view), _compared(compared), _timeline(view, tones), _phases(report, tones), _findings(view)]
    parts += [_wall(report, tones), _metrics(view), _gpus(view), _more(report)]
    return _document(run_text.title(report), joined(parts))


# The card


def _card(view: View) -> Html:
    said = answer(view.report, view.verdict)
    (name, *run), *others = card.facts(view)
    label = [tag("span", view.label, class_="label")] if view.label else []
    rows = [tag("p", *(tag("span", fact) for fact in row), class_="facts") for row in (run, *others) if row]
    code = [tag("code", said.code)] if said.code else []
    why = [tag("h2", said.heading), tag("p", tag("b", said.title), *code), _list(said.evidence)]
    to_do = [tag("h2", "DO THIS"), _list(said.to_do, "ol")] if said.to_do else []
    gain = [tag("p", said.gain, class_="gain")] if said.gain else []
    lost = [tag("p", line, class_="warning") for line in _lines(run_text.reservations(view.report))]
    because = tag("section", *why, *to_do, *gain, class_=f"answer {_severity(view.verdict)}")
    return tag("header", tag("h1", name, *label), *rows, because, *lost)


def _lines(section: Section | None) -> list[str]:
    return [] if section is None else section.lines


def _severity(finding: Finding) -> str:
    return finding.severity if finding.severity in ("warning", "critical") else "info"


def _list(items: Iterable[str], name: str = "ul") -> Html:
    rows = [tag("li", item) for item in items]
    return tag(name, *rows) if rows else Html()


def _findings(view: View) -> Html:
    """Return the findings beside the verdict."""
    others = [finding for finding in view.report.findings if finding.code != view.verdict.code]
    return _section("Also found", *(_finding(view.report, finding) for finding in others))


def _finding(report: Report, finding: Finding) -> Html:
    head = tag("h3", tag("span", finding.severity, class_="label"), finding.title, tag("code", finding.code))
    gain = gain_line(report, finding)
    fix = [tag("p", f"→ {finding.advice}")] if finding.advice else []
    rest = [tag("p", gain, class_="gain")] if gain else []
    return tag("article", head, _list(finding.evidence), *fix, *rest, class_=_severity(finding))


def _compared(row: Comparison | None) -> Html:
    if row is None:
        return Html()
    head, *lines = (line for line in comparison.text(row).splitlines() if line)
    all_of_it = tag("details", tag("summary", "What differs"), *(_line(line) for line in lines))
    return _section("Comparison", tag("p", tag("b", head)), all_of_it)


def _line(line: str) -> Html:
    return tag("p", line.strip(), class_="nested" if line.startswith(" ") else None)


# Charts


def _section(title: str, *inside: str) -> Html:
    return tag("section", tag("h2", title), *inside) if any(inside) else Html()


def _framed(chart: Chart, values: Iterable[str], ends: Iterable[str]) -> Html:
    """Return a chart with the values at its edges, from the top, and what stands at its ends."""
    axis = tag("div", *(tag("span", value) for value in values), class_="values")
    foot = tag("div", *(tag("span", end) for end in ends), class_="ends")
    return tag("div", axis, chart.picture, foot, class_="chart")


def _timeline(view: View, tones: PhaseTones) -> Html:
    shown = stack(view)
    if shown is None:
        return Html()
    effects = [event.effect for event in view.details.throttle_events]
    held = [(each.first, each.last) for each in effects if each.first is not None and each.last is not None]
    slow = [step.step for step in view.report.slow_steps]
    chart = timeline(shown, tones, slow, held)
    values = (duration(chart.high), duration(chart.high / 2), "0")
    key = [_key(tones[name], name) for name in shown.names]
    key += [_key("slow", "slow step")] if slow else []
    key += [_key("over", "GPU throttled")] if held else []
    rank = view.report.throughput.rank
    of_rank = f"rank {rank}" if rank is not None else ""
    title = ", ".join(filter(None, ("Step time by phase", shown.clock, of_rank)))
    steps = f"bar: mean of {shown.width:,} steps" if shown.width > 1 else "bar: a step"
    ends = (f"step {shown.first:,}", steps, f"{shown.end:,}")
    hint = tag("p", "Drag over the chart to enlarge a part; a double click shows all of it.", class_="hint", hidden="")
    return _section(title, _framed(chart, values, ends), tag("p", *key, class_="facts"), hint)


def _key(tone: str, name: str) -> Html:
    return tag("span", tag("i", class_=f"key {tone}"), name)


def _bar(parts: Iterable[tuple[str, float]], whole: float) -> Html:
    """Return (tone, amount) side by side, as parts of a whole."""
    drawn, at = [], 0.0
    for tone, amount in parts:
        width = WIDTH * amount / whole
        drawn.append(tag("rect", class_=tone, x=at, y=0, width=width, height=1))
        at += width
    return tag("svg", *drawn, class_="bar", viewBox=f"0 0 {WIDTH} 1", preserveAspectRatio="none")


def _phases(report: Report, tones: PhaseTones) -> Html:
    found = card.bars(report)
    if found is None:
        return Html()
    title, rows = found
    cells = []
    for name, seconds, part in rows:
        bar = tag("td", _bar([(tones[name], part)], 1.0))
        cells.append(tag("tr", tag("td", name), _number(duration(seconds)), _number(share(part)), bar))
    return _section(title.replace(card.GAP, ": "), tag("table", *cells, class_="bars"))


def _number(text: str) -> Html:
    return tag("td", text, class_="number")


def _wall(report: Report, tones: PhaseTones) -> Html:
    found = wall(report)
    if found is None:
        return Html()
    own = {"start-up": STARTUP, "steps": STEPS, BETWEEN: "between", "teardown": TEARDOWN}
    parts = {name: own.get(name, tones[name]) for name, _ in report.wall.parts}
    bar = _bar([(parts[name], seconds) for name, seconds in report.wall.parts], report.wall.total or 1.0)
    return _section(found.title, bar if found.rows else Html(), *map(_line, found.lines), _table(found, parts))


def _table(section: Section, tones: Mapping[str, str] | None = None) -> Html:
    """Return the table of a section, with a key in its first column for what has a tone."""
    if not section.rows:
        return Html()
    keys = tones or {}
    head, *rows = section.rows
    titles = [tag("th", title, class_=None if at < section.left else "number") for at, title in enumerate(head)]
    body = [
        tag("tr", *(_cell(cell, keys) if at < section.left else _number(cell) for at, cell in enumerate(row)))
        for row in rows
    ]
    return tag("div", tag("table", tag("tr", *titles), *body), class_="wide")


def _cell(text: str, tones: Mapping[str, str]) -> Html:
    return tag("td", _key(tones[text], text) if text in tones else text)


def _metrics(view: View) -> Html:
    charts: list[Html] = []
    for name, curve in view.metrics.items():
        row = view.report.metrics.get(name)
        if row is None or row.min == row.max or len(charts) >= MAX_CHARTS:
            continue  # the table below has what does not change
        drawn = line_chart(curve)
        if drawn is None:
            continue
        odd = f", {row.nonfinite:,} not finite" if row.nonfinite else ""
        head = tag("figcaption", tag("b", name), tag("span", f"{number(row.last)}{odd}"))
        ends = (f"step {drawn.first:,.0f}", f"{drawn.last:,.0f}")
        charts.append(tag("figure", head, _framed(drawn, (number(drawn.high), number(drawn.low)), ends)))
    return _section("Metrics", tag("div", *charts, class_="grid") if charts else "")


# GPUs


def _gpus(view: View) -> Html:
    found = gpus(view.report)
    if found is None:
        return Html()
    events = view.details.throttle_events
    rows = [tag("li", _when(view, event), Html(" "), event.line()) for event in events[:MAX_EVENTS]]
    rows += [tag("li", f"and {len(events) - MAX_EVENTS:,} more")] if len(events) > MAX_EVENTS else []
    throttled = [tag("h3", "Throttle events"), tag("ul", *rows)] if rows else []
    charts = [_clock(view, gpu.uuid, gpu.index) for gpu in view.report.gpus[:MAX_GPU_CHARTS]]
    drawn = tag("div", *charts, class_="grid") if any(charts) else ""
    return _section(found.title, *map(_line, found.lines), *throttled, drawn)


def _when(view: View, event: ThrottleEvent) -> Html:
    """Return when a throttle event began, since the start of the run, and how long it was seen."""
    started, offset = view.report.run.started, view.details.wall_offset
    since = -1.0 if started is None or offset is None else event.start + offset - started
    return tag("b", (f"at {age(since)}, " if since >= 0 else "") + f"for {duration(event.seconds)}")


def _clock(view: View, uuid: str, index: int) -> Html:
    """Return the clock of a GPU by its latest readings, with what held it marked; empty where it is unknown."""
    detail = view.details.gpus.get(uuid)
    readings = [] if detail is None else [each for each in detail.readings if each.sm_clock is not None]
    if len(readings) < 2:
        return Html()
    end = readings[-1].t
    x, clocks = [each.t - end for each in readings], [float(each.sm_clock or 0) for each in readings]
    held = [
        (event.start - end, (event.end or end) - end)
        for event in view.details.throttle_events
        if event.uuid == uuid and (event.end or end) > readings[0].t
    ]
    drawn = line_chart(Curve(x, clocks, clocks, clocks), held)
    if drawn is None:
        return Html()
    head = tag("figcaption", tag("b", f"GPU {index} clock"), tag("span", "throttled where marked" if held else ""))
    ends = (f"{age(-x[0])} before the last reading", "")
    return tag("figure", head, _framed(drawn, (f"{drawn.high:,.0f} MHz", f"{drawn.low:,.0f}"), ends))


# All the rest of the account


def _more(report: Report) -> Html:
    """Return what `report --full` says and the page does not say above, a closed part each."""
    said = [run_text.findings(report), run_text.reservations(report), wall(report), gpus(report)]
    said += [run_text.to_try(report)] if len(report.to_try) <= MAX_TO_TRY else []
    titles = {section.title for section in said if section is not None}
    head = Section("Run", [f"{label}: {text}" for label, text in run_text.summary(report) if label in HEAD_ROWS])
    rest = [head, *(section for section in run_text.sections(report) if section.title not in titles)]
    parts = [tag("details", tag("summary", part.title), *map(_line, part.lines), _table(part)) for part in rest]
    return _section("The whole account", *parts)


# The document


def _document(title: str, body: Html) -> str:
    own = f"style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}"
    policy = f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
    head = [
        Html('<meta charset="utf-8"/>'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1"/>'),
        Html('<meta name="color-scheme" content="light dark"/>'),
        tag("title", title),
        tag("style", Html(STYLE)),
    ]
    script = tag("script", Html(SCRIPT))
    return f"<!DOCTYPE html>\n{tag('html', tag('head', *head), tag('body', body, script), lang='en')}\n"


def _colors(palette: Palette) -> str:
    names = ("background", "raised", "text", "muted", "rule", "accent", "warning", "bad", "other", "between")
    colors = [f"--{name}:{palette.color(name)}" for name in (*names, *_PHASES)]
    return f":root{{{';'.join(colors)}}}"


_PHASES = [f"phase{place}" for place in range(len(PAPER.phases))]
_TONES = "".join(
    f".{tone}{{fill:var(--{tone});background:var(--{tone})}}"
    for tone in (*_PHASES, "other", "between", "muted", "accent", "text")
)
STYLE = (
    f"""{_colors(PAPER)}
@media(prefers-color-scheme:dark){{{_colors(MIDNIGHT)}}}
{_TONES}
"""
    + """
*{box-sizing:border-box}
body{margin:0 auto;max-width:1100px;padding:16px;font:15px/1.45 system-ui,sans-serif;
background:var(--background);color:var(--text);overflow-wrap:anywhere}
h1{font-size:1.5rem;margin:0 0 .5rem}
h2{font-size:.85rem;letter-spacing:.05em;color:var(--muted);margin:1.8rem 0 .5rem}
h3{font-size:1rem;margin:.8rem 0 .3rem}
p{margin:.3rem 0}
ul,ol{margin:.3rem 0;padding-left:1.4rem}
.facts{display:flex;flex-wrap:wrap;gap:.1rem 1.2rem}
.answer{border-left:4px solid var(--accent);background:var(--raised);padding:.6rem 1rem;margin:1rem 0}
.answer h2{margin:.6rem 0 .2rem}
article{border-left:4px solid var(--accent);padding-left:1rem;margin:1rem 0}
.answer.warning,article.warning{border-color:var(--warning)}
.answer.critical,article.critical{border-color:var(--bad)}
p.warning{color:var(--warning)}
.gain,.hint,.nested{color:var(--muted)}
.nested{padding-left:1.2rem}
.label{font-size:.75rem;font-weight:400;border:1px solid;padding:0 .4em;margin:0 .5em;vertical-align:middle}
h3 .label{margin-left:0}
code{color:var(--muted);font-size:.85em;margin-left:.6em}
svg{display:block;background:var(--raised)}
.chart{display:grid;grid-template-columns:auto minmax(0,1fr);gap:2px 8px;font-size:.75rem;color:var(--muted)}
.chart svg{width:100%;height:90px}
.chart #timeline{height:240px;touch-action:pan-y;cursor:crosshair}
.values{display:flex;flex-direction:column;justify-content:space-between;text-align:right;white-space:nowrap}
.ends{grid-column:2;display:flex;justify-content:space-between;gap:1rem}
.line,.slow,.over{fill:none;vector-effect:non-scaling-stroke;stroke-linecap:round;stroke-linejoin:round}
.line{stroke:var(--accent);stroke-width:1.5}
.band{fill:var(--accent);opacity:.2}
.slow,.over{stroke:var(--bad);stroke-width:2}
.over{stroke-width:4}
.held{fill:var(--bad);opacity:.25}
.points{fill:transparent}
.points rect:hover,.chosen{fill:var(--text);fill-opacity:.15}
.key{display:inline-block;width:.8em;height:.8em;margin-right:.4em}
.key.slow{background:var(--bad);width:.2em}
.key.over{background:var(--bad);height:.25em;vertical-align:.25em}
.bar{width:100%;height:14px;margin:3px 0}
td:first-child{min-width:9em}
.bars td:last-child{width:55%;padding-right:0}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%}
td,th{padding:2px 12px 2px 0;text-align:left;vertical-align:top;min-width:5em}
.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums;min-width:0}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,300px),1fr));gap:1.2rem}
figure{margin:0}
figcaption{display:flex;justify-content:space-between;gap:1rem;margin-bottom:.2rem}
details{border-top:1px solid var(--rule);padding:.4rem 0}
summary{cursor:pointer;font-weight:600}
"""
)
# Written without the signs that mark up: the page is well-formed, whatever reads it.
SCRIPT = f"""
(function(){{
"use strict";
var chart=document.getElementById("timeline");
if(!chart)return;
var first=+chart.dataset.first,steps=+chart.dataset.end+1-first,whole={WIDTH},low=0,high=whole,from=null;
var ends=chart.parentNode.querySelectorAll(".ends span"),chosen=chart.querySelector(".chosen");
function at(event){{
var place=chart.getBoundingClientRect();
return Math.min(high,Math.max(low,low+(event.clientX-place.left)/place.width*(high-low)));
}}
function step(x){{return Math.min(steps-1,Math.floor(x/whole*steps))+first}}
function show(begin,end){{
low=begin;high=end;
chart.setAttribute("viewBox",low+" 0 "+(high-low)+" {HEIGHT}");
ends[0].textContent="step "+step(low).toLocaleString("en-US");
ends[2].textContent=step(high).toLocaleString("en-US");
}}
function choose(begin,end){{
chosen.setAttribute("x",Math.min(begin,end));
chosen.setAttribute("width",Math.abs(end-begin));
}}
function leave(){{from=null;choose(0,0)}}
chart.addEventListener("pointerdown",function(event){{from=at(event);chart.setPointerCapture(event.pointerId)}});
chart.addEventListener("pointermove",function(event){{if(from!==null)choose(from,at(event))}});
chart.addEventListener("pointerup",function(event){{
var begin=from,end=at(event);
leave();
if(begin===null)return;
if(Math.abs(end-begin)>0.02*(high-low))show(Math.min(begin,end),Math.max(begin,end));
}});
chart.addEventListener("pointercancel",leave);
chart.addEventListener("dblclick",function(){{show(0,whole)}});
document.querySelector(".hint").hidden=false;
}})();
"""


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
