"""Readings on their way through a journal: what is absent stays so, what is hostile is made harmless."""

from __future__ import annotations

import json

from monitor.sources.decode import decode
from trainhooks.protocol import encoding, events
from trainhooks.protocol.encoding import to_dict
from trainhooks.protocol.events import Gpu, Host
from trainhooks.protocol.limits import MAX_GPU_PROCESSES


def through(event: events.Event) -> object:
    return decode(encoding.encoder()(to_dict(event)))


def test_a_full_reading_comes_out_as_it_went_in() -> None:
    gpu = Gpu("node", 1, 2.0, "GPU-1", 3, "H200", 97.0, mig_of="GPU-0", thermal_violation=0.25, xid=79, ours=True)
    gpu.driver, gpu.bus_id, gpu.mig, gpu.remap_failed = "580.95", "00000000:18:00.0", False, True
    gpu.processes = [(1234, "python", 5, True), (9, "other", None, False), (8, "", None, None)]
    assert through(gpu) == gpu
    host = Host("node", 2, 2.0, tree_busiest=99.5, tree_busiest_name="python 12", cpu_limit=2.5, pressure_cpu=40.0)
    assert through(host) == host


def test_what_was_not_read_is_not_written() -> None:
    assert set(to_dict(Gpu("node", 1, 2.0, "GPU-1"))) == {"kind", "producer", "seq", "t", "uuid"}


def test_processes_are_cleaned_and_limited() -> None:
    many = [[pid, "name\x1b]52;c;x\x07", -5, None] for pid in range(MAX_GPU_PROCESSES + 10)]
    line = {
        "kind": "gpu",
        "producer": "node",
        "seq": 1,
        "t": 1.0,
        "uuid": "U\x1b[2J",
        "driver": "5\u202e8",
        "processes": many,
    }
    gpu = decode(json.dumps(line).encode())
    assert isinstance(gpu, Gpu) and gpu.processes is not None
    assert len(gpu.processes) == MAX_GPU_PROCESSES
    assert gpu.processes[3] == (3, "name ]52;c;x", None, None)
    assert (gpu.uuid, gpu.driver) == ("U [2J", "5 8")


def test_readings_of_an_earlier_version_are_understood() -> None:
    gpu = decode(b'{"kind":"gpu","producer":"node","seq":1,"t":1.0,"uuid":"GPU-1","sm_clock":1980,"new_field":[1]}')
    assert isinstance(gpu, Gpu)
    assert (gpu.sm_clock, gpu.processes, gpu.thermal_violation) == (1980, None, None)
