"""Figures for a cluster's monitors: a real Prometheus reads them, OpenTelemetry's own definitions fit them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import psutil
import pytest

from monitor.commands.otlp_sender import Sender
from monitor.model.report import Finding, GpuRow, Report
from monitor.model.view import FindingChange
from monitor.reports.gauges import MAX_ROWS, events_request, exposition, gauges, metrics_request
from tests.launch.conftest import ROOT, State, state, wait_for
from tests.model.conftest import Story, report_of

with contextlib.suppress(ImportError):
    from google.protobuf import json_format
    from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

__all__ = ["state"]
FLEET = ROOT / "docs" / "fleet"
TRAIN = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); import time, trainhooks as th\n"
    + """
for _ in th.steps(range(40)):
    with th.phase("forward"):
        time.sleep(0.02)
"""
)


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed: Debian's prometheus")


def a_report() -> Report:
    """A run with a hostile phase, and things in it that must not leave."""
    told = Story(host="box", facts={"command": ["python", "/home/ann/secret.py"]})
    for _ in range(5):
        told.step_with({"metrics": {"secret_loss": 1.0}, "tokens": 512}, **{'a"\\\n{}': 1.0, "forward": 1.0})
    report = report_of(told, id="run-1", name="tuned")
    report.gpus = [GpuRow(uuid="GPU-1", index=0, ours=True), GpuRow(uuid="GPU-2", index=1, ours=False)]
    report.findings = [
        Finding(code="input-bound", severity="warning", title="secret.py:3", evidence=["secret"], lost_fraction=0.4)
    ]
    return report


@needs("promtool")
def test_promtool_finds_no_fault_with_figures_and_rules() -> None:
    text = exposition(gauges(a_report(), 1e9)).encode()
    assert subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True).stdout == b""
    checked = subprocess.run(["promtool", "check", "rules", FLEET / "rules.yml"], capture_output=True)
    assert checked.returncode == 0, checked.stderr
    read = subprocess.run(["promtool", "check", "metrics"], input=b"no exposition", capture_output=True)
    assert read.returncode, "it would see one"


def test_only_figures_leave() -> None:
    report = a_report()
    change = FindingChange(1.0, "appeared", report.findings[0])
    found = gauges(report, 1e9)
    for sent in (
        exposition(found).encode(),
        metrics_request(found, "box", 1e9),
        events_request("run-1", [change], "box", 1e9),
    ):
        assert b"secret" not in sent and b"ann" not in sent and b"run-1" in sent
    labels = {name for gauge in found for row, _ in gauge.rows for name in row}
    assert labels <= {"run", "name", "job_id", "Hostname", "UUID", "phase", "role", "code", "severity", "rank"}
    listed = set(re.findall(r"`(trainmon_\w+)`", (ROOT / "docs" / "fleet.md").read_text()))
    assert {gauge.name for gauge in found} <= listed


def test_series_are_bounded_and_unknown_is_left_out() -> None:
    told = Story()
    for _ in range(5):
        told.step(**{f"phase{number}": 0.01 for number in range(100)})
    found = {gauge.name: gauge.rows for gauge in gauges(report_of(told, id="run-1"), 1e9)}
    assert len(found["trainmon_phase_ratio"]) == MAX_ROWS
    assert "trainmon_mfu_ratio" not in found and "trainmon_tokens_per_second" not in found


def test_a_gpu_is_named_as_dcgm_names_it() -> None:
    (gpu,) = next(gauge.rows for gauge in gauges(a_report(), 1e9) if gauge.name == "trainmon_gpu_info")
    assert gpu == ({"run": "run-1", "UUID": "GPU-1", "Hostname": "box"}, 1.0), "the run's own alone"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextlib.contextmanager
def running(words: list[str], log: Path) -> Iterator[None]:
    with open(log, "wb") as out:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def asked(port: int, query: str) -> list[dict[str, Any]] | None:
    """Return the series of a query; None while Prometheus does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}", timeout=10) as answer:
            return json.load(answer)["data"]["result"]  # type: ignore[no-any-return]
    except OSError as error:
        assert not isinstance(error, HTTPError) or error.code == 503, error.read()  # 503: it begins
        return None


@needs("prometheus")
@pytest.mark.long
def test_prometheus_reads_the_figures_of_a_run(state: State, tmp_path: Path) -> None:
    """What a real run leaves for node-exporter, served as that serves it, beside a series of DCGM's."""
    directory = tmp_path / "textfile"
    directory.mkdir()
    state.environment["TRAINMON_METRICS_TEXTFILE"] = str(directory)
    assert state.run(sys.executable, "-c", TRAIN).returncode == 0
    run = state.only.name
    ours = {"monitor.commands.publishing", str(state.only)}
    everyone = psutil.process_iter(["cmdline"])
    (publisher,) = [process for process in everyone if ours <= set(process.info["cmdline"] or [])]
    file = directory / f"trainmon-{run}.prom"
    wait_for(lambda: file.exists() and "trainmon_running" in file.read_text() and "} 40.0" in file.read_text())
    assert file.stat().st_mode & 0o777 == 0o644 and len(list(directory.iterdir())) == 1
    dcgm = 'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1",Hostname="box"} 7\n' + exposition(gauges(a_report(), time.time()))
    served = tmp_path / "served"
    served.mkdir()
    (served / "metrics").write_text(file.read_text())
    (served / "dcgm").write_text(dcgm)

    class Quiet(SimpleHTTPRequestHandler):
        def guess_type(self, path: object) -> str:
            return "text/plain; version=0.0.4"

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        served_at = f"127.0.0.1:{server.server_port}"
        jobs = [
            {"job_name": name, "metrics_path": f"/{name}", "static_configs": [{"targets": [served_at]}]}
            for name in ("metrics", "dcgm")
        ]  # fmt: skip
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config = {"global": every, "rule_files": [str(FLEET / "rules.yml")], "scrape_configs": jobs}
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # which is YAML
        port = free_port()
        words = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
        with running([*words, f"--web.listen-address=127.0.0.1:{port}"], tmp_path / "log"):
            wait_for(lambda: asked(port, f'trainmon_steps{{run="{run}"}}') and asked(port, "DCGM_FI_DEV_GPU_UTIL"), 120)
            (steps,) = asked(port, f'trainmon_steps{{run="{run}"}}') or []
            assert steps["value"][1] == "40"
            (joined,) = (
                asked(port, "DCGM_FI_DEV_GPU_UTIL * on (UUID, Hostname) group_left (run) trainmon_gpu_info") or []
            )
            assert joined["metric"]["run"] == "run-1" and joined["value"][1] == "7"
            board = json.loads((FLEET / "board.json").read_text())
            for panel in board["panels"]:
                for target in panel["targets"]:
                    assert asked(port, target["expr"].replace("$run", ".*")) is not None, panel["title"]
            pending = 'ALERTS{alertname="TrainingLosesTime", name="tuned", code="input-bound"}'
            wait_for(lambda: asked(port, pending))
        server.shutdown()
    publisher.terminate()
    wait_for(lambda: not file.exists())


class Receiver(BaseHTTPRequestHandler):
    """Reads requests by OpenTelemetry's own definitions, which know no field that is not theirs."""

    def do_POST(self) -> None:
        kind, message = {
            "/v1/metrics": ("metrics", metrics_service_pb2.ExportMetricsServiceRequest()),
            "/v1/logs": ("logs", logs_service_pb2.ExportLogsServiceRequest()),
        }[self.path]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((kind, json_format.Parse(body, message), dict(self.headers)))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_requests_are_those_of_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.proto", reason="no definitions: pip install opentelemetry-proto")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer x")
    report = a_report()
    view: Any = SimpleNamespace(report=report, finding_changes=[FindingChange(1.0, "appeared", report.findings[0])])
    port = free_port()
    sender = Sender(f"http://127.0.0.1:{port}/")
    sender.send(view)  # before there is anybody: the change waits
    view.finding_changes = []
    with ThreadingHTTPServer(("127.0.0.1", port), Receiver) as server:
        server.received = received = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sender.send(view)
        sender.send(view)
        server.shutdown()
    assert [kind for kind, *_ in received] == ["metrics", "logs", "metrics"], "a change is told once"
    figures, changes = received[0][1], received[1][1]
    (scope,) = figures.resource_metrics[0].scope_metrics
    assert [metric.name for metric in scope.metrics] == [gauge.name for gauge in gauges(report, 1e9)]
    tokens = next(metric for metric in scope.metrics if metric.name == "trainmon_tokens_per_second")
    assert tokens.gauge.data_points[0].as_double == pytest.approx(256.0) and tokens.unit == "{token}/s"
    (record,) = changes.resource_logs[0].scope_logs[0].log_records
    assert record.body.string_value == "appeared: input-bound" and record.event_name == "trainmon.finding"
    assert received[0][2]["Authorization"] == "Bearer x"


COLLECTOR = next(filter(None, map(shutil.which, ("otelcol", "otelcol-contrib"))), None)


@pytest.mark.long
@pytest.mark.skipif(COLLECTOR is None, reason="no collector with an OTLP receiver is on PATH: otelcol")
def test_a_collector_receives_figures_and_changes(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    pipeline = {"receivers": ["otlp"], "exporters": ["debug"]}
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"debug": {"verbosity": "detailed"}},
        "service": {"telemetry": {"metrics": {"level": "none"}}, "pipelines": {"metrics": pipeline, "logs": pipeline}},
    }
    (tmp_path / "collector.yml").write_text(json.dumps(config))  # which is YAML
    report = a_report()
    view: Any = SimpleNamespace(report=report, finding_changes=[FindingChange(1.0, "appeared", report.findings[0])])
    sender = Sender(f"http://127.0.0.1:{port}")
    sender.send(view)
    view.finding_changes = []
    with running([str(COLLECTOR), f"--config={tmp_path}/collector.yml"], log):

        def arrived() -> bool:
            sender.send(view)
            return b"appeared: input-bound" in log.read_bytes()

        wait_for(arrived, 60)
    text = log.read_text()
    assert all(f"Name: {gauge.name}" in text for gauge in gauges(report, time.time())) and "secret" not in text


def test_a_receiver_that_is_away_is_no_error() -> None:
    report = a_report()
    view: Any = SimpleNamespace(report=report, finding_changes=[FindingChange(1.0, "appeared", report.findings[0])])
    for where in (f"http://127.0.0.1:{free_port()}", "http://[broken"):
        Sender(where).send(view)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("TEXTFILE", "/nowhere/at/all", b"no directory"),
        *(("OTLP", url, b"no URL") for url in ("collector:4318", "http://[::1", "http://a:99999", "http:// bad host/")),
    ],
)
def test_a_mistake_in_the_configuration_is_one_line(state: State, name: str, value: str, says: bytes) -> None:
    state.environment[f"TRAINMON_METRICS_{name}"] = value
    done = state.run(sys.executable, "-c", "print('it runs')")
    assert done.returncode == 0 and done.stdout == b"it runs\n"
    assert says in done.stderr and done.stderr.count(b"the defaults are used") == 1
