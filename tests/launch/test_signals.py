"""Signals reach the training as they would without trainmon: the program alone, and each of them once."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.signals import send_group_signal, send_signal

from .conftest import State, python, wait_for

# Saves a checkpoint at SIGTERM and ends with 0, while the workers of its loader are at work.
CHECKPOINT = """
import signal, sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self): return 100000
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.ones(2) * index

def main():
    wanted = []
    signal.signal(signal.SIGTERM, lambda number, frame: wanted.append(number))
    loader = DataLoader(Rows(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[2])
    for step, batch in enumerate(loader):
        open(sys.argv[1] + '/step', 'w').write(str(step))
        if wanted and step > 20:
            torch.save({'step': step}, sys.argv[1] + '/checkpoint')
            return

if __name__ == '__main__':
    main()
"""

COUNTS_SIGNALS = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
    signal.signal(number, lambda number, frame: os.write(1, b'got %d\\n' % number))
print('ready', flush=True)
while True:
    time.sleep(0.05)
"""


def stepped(path: Path) -> bool:
    return (path / "step").exists()


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_a_checkpoint_at_sigterm_is_saved_though_there_are_workers(state: State, tmp_path: Path, context: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(CHECKPOINT)
    front = state.start(sys.executable, str(script), str(tmp_path), context)
    wait_for(lambda: stepped(tmp_path))
    front.terminate()
    _, said = front.communicate(timeout=60)
    assert (front.returncode, (tmp_path / "checkpoint").exists()) == (0, True), said


@pytest.mark.long
def test_torchrun_gets_sigterm_and_its_workers_get_it_from_torchrun(state: State, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(COUNTS_SIGNALS.replace("while True", "for _ in range(40)"))
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    front = state.start(sys.executable, *torchrun, str(script))
    wait_for(lambda: (state.only / "stdout.log").read_text().count("ready") == 2)
    front.terminate()
    out, _ = front.communicate(timeout=60)
    assert out.decode().count(f"got {signal.SIGTERM.value}") == 2


def signals_of(state: State) -> list[int]:
    """The signals that the program has printed, once it has had the time to get them twice."""
    wait_for(lambda: "got" in (state.only / "stdout.log").read_text())
    time.sleep(0.5)
    return [int(line.split()[1]) for line in (state.only / "stdout.log").read_text().splitlines() if "got" in line]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_sent_to_every_process_arrives_once(state: State, number: signal.Signals) -> None:
    """As `docker stop` of some images, systemd, `scancel` and `scancel --signal` send it."""
    front = state.start(*python(COUNTS_SIGNALS))
    wait_for(lambda: state.runs() and "ready" in (state.only / "stdout.log").read_text())
    for pid in (front.pid, state.supervisor(state.only), state.pid(state.only)):
        send_signal(pid, number)
    assert signals_of(state) == [number]
    front.kill()
    send_signal(state.pid(state.only), signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_sent_to_trainmon_reaches_the_program_alone(state: State, number: signal.Signals) -> None:
    """As `kill`, `docker stop`, Kubernetes and `sbatch --signal=B:USR1@60` send it."""
    child = "import os, signal\nif os.fork() == 0: signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    front = state.start(*python(child + COUNTS_SIGNALS))
    wait_for(lambda: state.runs() and (state.only / "stdout.log").read_text().count("ready") == 2)
    send_signal(front.pid, number)
    assert signals_of(state) == [number]
    send_group_signal(state.pid(state.only), signal.SIGKILL)
    front.wait(30)


def test_ctrl_c_in_a_terminal_reaches_the_whole_process_group(state: State) -> None:
    pid, terminal = pty.fork()
    child = "import os\nos.fork()\n"
    command = [sys.executable, "-m", "monitor", "run", "--no-tui", "--", *python(child + COUNTS_SIGNALS)]
    if pid == 0:
        os.environ["TRAINMON_DIR"] = str(state.path)
        os.execv(command[0], command)
    wait_for(lambda: state.runs() and (state.only / "console.log").read_text().count("ready") == 2)
    os.write(terminal, b"\x03")
    wait_for(lambda: (state.only / "console.log").read_text().count(f"got {signal.SIGINT.value}") == 2)
    send_group_signal(state.pid(state.only), signal.SIGKILL)
    os.close(terminal)
    os.waitpid(pid, 0)


def test_ctrl_z_stops_the_training_and_fg_continues_it(state: State, tmp_path: Path) -> None:
    count = "import sys, time\nn = 0\nwhile True:\n n += 1; open(sys.argv[1], 'w').write(str(n)); time.sleep(0.01)"
    front = state.start(*python(count), str(tmp_path / "count"))
    wait_for((tmp_path / "count").exists)
    pid = state.pid(state.only)

    def standing(process: int) -> bool:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] == "T"

    send_signal(front.pid, signal.SIGTSTP)
    wait_for(lambda: standing(pid) and standing(front.pid))
    send_signal(front.pid, signal.SIGCONT)
    wait_for(lambda: not standing(pid))
    send_signal(pid, signal.SIGKILL)
    assert front.wait(30) == 128 + signal.SIGKILL


def test_many_signals_in_a_row_reach_the_program_and_end_nothing(state: State) -> None:
    counts = """
import signal, sys, time
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
signal.signal(signal.SIGUSR2, lambda *_: (print('saved', len(seen) > 0), sys.exit(4)))
print('ready', flush=True)
time.sleep(60)
"""
    front = state.start(*python(counts))
    wait_for(lambda: state.runs() and "ready" in (state.only / "stdout.log").read_text())
    for _ in range(1000):
        send_signal(front.pid, signal.SIGUSR1)
        time.sleep(0.0002)
    send_signal(front.pid, signal.SIGUSR2)
    out, said = front.communicate(timeout=60)
    assert (front.returncode, out) == (4, b"ready\nsaved True\n"), said
