"""Figures and changes of findings for an OTLP receiver that the user names: the only module that uses the network."""

from __future__ import annotations

import os
import socket
import time
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

from monitor.reports.gauges import CONTENT_TYPE, events_request, gauges, metrics_request

if TYPE_CHECKING:
    from monitor.model.view import View

SEND_SECONDS = 5.0  # that one request may take
MAX_PENDING = 100  # changes of findings that wait for a receiver that is away
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"  # name=value,... as for other programs: a token is no setting of ours


class Sender:
    """Sends figures and changes of findings to an OTLP receiver, as JSON over HTTP."""

    def __init__(self, receiver: str) -> None:
        self._receiver = receiver.rstrip("/")
        pairs = (pair.partition("=") for pair in os.environ.get(HEADERS, "").split(",") if "=" in pair)
        self._headers = {name.strip(): value.strip() for name, _, value in pairs}
        self._host = socket.gethostname()
        self._pending: list[bytes] = []

    def send(self, view: View) -> None:
        """Send what is known now. What a receiver that is away misses is sent later if it is a change of a finding."""
        now = time.time()
        if view.finding_changes:
            changes = events_request(view.report.run.id or "", view.finding_changes, self._host, now)
            self._pending = [*self._pending, changes][-MAX_PENDING:]
        if self._post("/v1/metrics", metrics_request(gauges(view.report, now), self._host, now)):
            while self._pending and self._post("/v1/logs", self._pending[0]):
                del self._pending[0]

    def _post(self, path: str, body: bytes) -> bool:
        try:
            request = Request(self._receiver + path, body, {**self._headers, "Content-Type": CONTENT_TYPE})
            with urlopen(request, timeout=SEND_SECONDS) as answer:
                return bool(answer.status < 300)
        except (OSError, ValueError, HTTPException):  # away, or it refuses
            return False
