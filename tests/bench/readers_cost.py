"""What the readers cost: the start of the command, the fold, the first paint of `attach`."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.bench.journals import write_run
from tests.bench.terminals import TRAINMON, read, screen, state_dir

RECORDINGS = Path(__file__).parents[2] / "demo" / "recordings"
PAINTED = b"Where the time goes"  # a panel's title: the screen stands, with the run's state on it


def command_start(times: int = 7) -> dict[str, float]:
    """Seconds of `trainmon --help` beside those of an empty Python program, in turns."""
    helps, bares = [], []
    for _ in range(times):
        bares.append(_seconds([sys.executable, "-c", "pass"]))
        helps.append(_seconds([*TRAINMON, "--help"]))
    bare, help_ = statistics.median(bares), statistics.median(helps)
    return {"python -c pass, ms": 1e3 * bare, "trainmon --help, ms": 1e3 * help_, "ratio": help_ / bare}


def _seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def fold_speed(steps: int = 50_000) -> dict[str, float]:
    """Steps a second from a journal to a state, and that in units of a bare JSON decode of the same lines."""
    import msgspec

    from monitor.runs.follow import Run

    with state_dir() as state:
        path = write_run(state / "runs", steps)
        lines = next(path.glob("rank-*.jsonl")).read_bytes().splitlines()
        begin = time.process_time()
        for line in lines:
            msgspec.json.decode(line)
        decode = time.process_time() - begin
        run = Run(path)
        begin = time.process_time()
        while run.advance(1.0):
            pass
        fold = time.process_time() - begin
        begin = time.process_time()
        for _ in range(20):
            run.view()
        view = (time.process_time() - begin) / 20
        run.close()
        return {
            "events folded a second": steps / fold,
            "fold / bare JSON decode": fold / decode,
            "one view, ms": 1e3 * view,
        }


def diagnosis(times: int = 20) -> dict[str, float]:
    """What the rules cost while a run lives, once a whole view: on the recordings of the demos, and on a long run."""
    from monitor.diagnosis.diagnose import diagnose
    from monitor.diagnosis.rule import Evidence
    from monitor.diagnosis.suggestions import suggest
    from monitor.diagnosis.verdict import verdict
    from monitor.model.summary import make_report, open_work
    from monitor.model.wall_time import RunContext
    from monitor.runs.follow import WHOLE_FRAME
    from monitor.runs.replay import open_player

    dearest = 0.0
    with state_dir() as state:
        for recording in (*sorted(RECORDINGS.glob("*.jsonl")), write_run(state / "runs", 50_000)):
            player = open_player(str(recording))
            while not player.play_to(player.now - player.elapsed + player.length):
                pass
            around = RunContext({}, player.now, True)
            known = make_report(player.state, around)
            evidence = Evidence(player.state, known, open_work(player.state, around, known.outcome))
            begin = time.process_time()
            for _ in range(times):
                found = diagnose(evidence)
                suggest(evidence, found)
                verdict(found, evidence)
            dearest = max(dearest, (time.process_time() - begin) / times)
    return {"one diagnosis, ms": 1e3 * dearest, "live, % of a core": 100 * dearest / WHOLE_FRAME}


def first_paint(sizes: tuple[int, ...] = (10_000, 1_000_000)) -> dict[str, float]:
    """Seconds from `trainmon attach` to the first full screen, for an empty run and for long ones."""
    out = {}
    with state_dir() as state:
        for steps in (0, *sizes):
            path = write_run(state / "runs", steps)
            out[f"attach, {steps} steps: first paint, s"] = _paint(path, state)
        if sizes[-1] >= 100_000:
            out[f"report, {sizes[-1]} steps, journals alone, s"] = _seconds_in(state, path)
            out[f"report, {sizes[-1]} steps, again, s"] = _seconds_in(state, path)
            out[f"attach, {sizes[-1]} steps, again: first paint, s"] = _paint(path, state)
            _leave_as_recorded(path)
            out[f"report, {sizes[-1]} steps of a recorded run, first time, s"] = _seconds_in(state, path)
    return out


def many_ranks(ranks: int = 1024, steps: int = 1000) -> dict[str, float]:
    """Seconds of the first report of a run of many ranks, and of the second."""
    with state_dir() as state:
        path = write_run(state / "runs", steps, ranks)
        return {
            f"report, {ranks} ranks of {steps} steps, s": _seconds_in(state, path),
            f"report, {ranks} ranks of {steps} steps, again, s": _seconds_in(state, path),
        }


def _leave_as_recorded(run: Path) -> None:
    """Leave the cached state as a recorder leaves it, as far behind the journal as it ever is."""
    from monitor.running.disk_budget import RENEWED_BYTES
    from monitor.runs import compaction, figures_cache, state_cache

    (run / state_cache.STATE_CACHE).unlink()
    journal = next(run.glob("rank-*.jsonl"))
    whole = journal.read_bytes()
    until = whole.rindex(b"\n", 0, max(1, len(whole) - RENEWED_BYTES)) + 1
    with open(journal, "r+b") as file:
        file.truncate(until)
        compaction.compact(run, len(whole))
        (run / figures_cache.FIGURES_CACHE).unlink(missing_ok=True)
        file.seek(until)
        file.write(whole[until:])


def _seconds_in(state: Path, path: Path) -> float:
    os.environ["TRAINMON_DIR"] = str(state)
    return _seconds([*TRAINMON, "report", str(path)])


def _paint(path: Path, state: Path) -> float:
    begin = time.perf_counter()
    with screen([*TRAINMON, "attach", str(path)], state) as (_, master):
        seen = b""
        while PAINTED not in seen:
            if time.perf_counter() - begin > 60:
                raise TimeoutError("no first paint in a minute")
            seen += read(master, 0.05)
        return time.perf_counter() - begin
