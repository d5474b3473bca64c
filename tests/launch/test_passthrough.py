"""trainmon in place of the program: same output, same exit code, same signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from trainhooks.protocol import rundir

from .conftest import State, python, wait_for


@pytest.mark.parametrize("code", [0, 7])
def test_the_exit_code_is_the_programs(state: State, code: int) -> None:
    assert state.run("sh", "-c", f"exit {code}").returncode == code
    assert state.ended(state.only)["exit_code"] == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_gives_128_and_its_number(state: State, number: signal.Signals) -> None:
    assert state.run("sh", "-c", f"kill -{number.value} $$").returncode == 128 + number
    ended = state.ended(state.only)
    assert (ended["exit_code"], ended["signal"]) == (None, number)


@pytest.mark.long
def test_output_passes_byte_by_byte_and_apart(state: State, tmp_path: Path) -> None:
    data = os.urandom(5_000_000) + b"\xff\x00no line end"
    (tmp_path / "data").write_bytes(data)
    ended = state.run("sh", "-c", f"printf 'to err\\n' >&2; cat {tmp_path / 'data'}")
    assert ended.stdout == data
    assert ended.stderr.startswith(b"to err\ntrainmon: sh finished")
    assert sorted((state.only / "console.log").read_bytes()) == sorted(b"to err\n" + data)
    assert not list(state.only.glob("std*.log")), "the console holds it all"


def test_output_goes_on_when_the_program_opens_dev_stdout(state: State) -> None:
    """A shell's `>/dev/stdout` empties the file that stdout is; the next line may be as long as the one before."""
    script = (
        "echo a long first line; sleep 1; echo b >/dev/stdout; echo c >/dev/stderr; sleep 1; echo d; sleep 1\n"
        "for i in 1 2; do echo tick $i >/dev/stderr; sleep 1; done; exit 3"
    )
    ended = state.run("bash", "-c", script)
    assert ended.returncode == 3
    assert ended.stdout == b"a long first line\nb\nd\n"
    assert ended.stderr.startswith(b"c\ntick 1\ntick 2\ntrainmon: ")
    lines = (state.only / "console.log").read_text().splitlines()
    assert sorted(lines) == ["a long first line", "b", "c", "d", "tick 1", "tick 2"]


def test_lines_stay_whole_in_the_console(state: State) -> None:
    script = "import sys\nfor i in range(3000): print('out', i); print('err', i, file=sys.stderr)"
    state.run(*python(script))
    lines = (state.only / "console.log").read_text().splitlines()
    for stream in ("out", "err"):
        assert [line for line in lines if line.startswith(stream)] == [f"{stream} {i}" for i in range(3000)]
    assert len(lines) == 6000


def test_one_stream_keeps_its_order(state: State) -> None:
    script = "for i in $(seq 100); do echo out $i; echo err $i >&2; done"
    ended = state.run("sh", "-c", script, capture_output=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    expected = "".join(f"out {i}\nerr {i}\n" for i in range(1, 101)).encode()
    assert ended.stdout.startswith(expected + b"trainmon: ")
    assert (state.only / "console.log").read_bytes() == expected


def test_output_arrives_while_the_program_runs(state: State) -> None:
    front = state.start(*python("print('first'); input()"), stdin=subprocess.PIPE)
    assert front.stdout.readline() == b"first\n"
    assert front.poll() is None
    front.communicate(b"\n", timeout=20)
    assert front.returncode == 0


def test_a_terminal_s_input_does_not_reach_the_program(state: State) -> None:
    """It would be stopped, or the dashboard's keys: it reads an end at once, and nothing waits for ever."""
    ours, its = os.openpty()
    try:
        os.write(ours, b"typed\n")
        ended = state.run(*python("import sys; print([sys.stdin.read(), sys.stdin.isatty()])"), stdin=its)
    finally:
        os.close(ours)
        os.close(its)
    assert (ended.returncode, ended.stdout) == (0, b"['', True]\n")


def test_a_pipe_on_stdin_reaches_the_program(state: State) -> None:
    ended = state.run("cat", stdin=None, input=b"x" * 300_000)
    assert ended.stdout == b"x" * 300_000


def test_a_reader_that_leaves_does_not_stop_the_training(state: State) -> None:
    front = state.start("sh", "-c", "while :; do echo line; sleep 0.01; done")
    front.stdout.readline()
    front.stdout.close()
    run = state.only
    size = (run / "stdout.log").stat().st_size
    wait_for(lambda: (run / "stdout.log").stat().st_size > size + 100)
    assert front.poll() is None
    front.terminate()
    assert front.wait(20) == 128 + signal.SIGTERM


def test_the_exit_code_is_the_programs_though_nobody_reads_stderr(state: State) -> None:
    script = "for i in 1 2 3; do echo $i; sleep 0.3; done; exit 3"
    front = state.start("sh", "-c", script, stderr=subprocess.STDOUT)
    assert front.stdout.readline() == b"1\n"
    front.stdout.close()
    assert front.wait(20) == 3


def test_the_exit_code_is_the_programs_though_stderr_is_full(state: State) -> None:
    with open("/dev/full", "wb") as full:
        ended = state.run("sh", "-c", "kill -9 $$", capture_output=False, stderr=full)
    assert ended.returncode == 128 + signal.SIGKILL


def test_closed_descriptors_do_no_harm(state: State) -> None:
    def close() -> None:
        for handle in (0, 1, 2):
            os.close(handle)

    ended = state.run("sh", "-c", "echo out; echo err >&2; exit 5", capture_output=False, stdin=None, preexec_fn=close)
    assert ended.returncode == 5
    assert (state.only / "console.log").read_bytes() == b""  # they are closed for the program, too
    json.loads((state.only / "run.json").read_bytes())


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (["no-such-program-anywhere"], 127, "command not found"),
        (["./pyproject.toml"], 126, "not executable"),
        (["/tmp"], 126, "is a directory"),
        ([""], 127, "command not found"),
    ],
)
def test_what_cannot_run_ends_in_one_line(state: State, command: list[str], code: int, says: str) -> None:
    ended = state.run(*command)
    assert ended.returncode == code
    assert ended.stdout == b""
    (line,) = ended.stderr.decode().splitlines()
    assert says in line
    assert not state.runs()


@pytest.mark.parametrize(("text", "code"), [("#!/no/such/interpreter\n", 127), ("\0no script\n", 126)])
def test_what_the_system_refuses_ends_in_one_line(state: State, tmp_path: Path, text: str, code: int) -> None:
    script = tmp_path / "script"
    script.write_text(text)
    script.chmod(0o755)
    ended = state.run(str(script))
    assert (ended.returncode, len(ended.stderr.splitlines())) == (code, 1)
    assert not state.runs()


def test_no_command_shows_the_usage(state: State) -> None:
    ended = state.call("run", "--no-tui")
    assert ended.returncode == 2
    assert b"Usage: trainmon run" in ended.stderr


def test_arguments_reach_the_program_as_given(state: State) -> None:
    words = ["--name", "x", "-h", "--", "--no-tui", "", "a b", "\udcff", "*"]
    show = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
    for separator in ([], ["--"]):
        ended = state.call("run", "--no-tui", *separator, *python(show), *words)
        assert ended.stdout == b"\0".join(map(os.fsencode, words))


def test_signals_are_forwarded(state: State) -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('usr1'))\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(33))\n"
        "print('ready')\n"
        "while True: time.sleep(0.05)\n"
    )
    front = state.start(*python(script))
    assert front.stdout.readline() == b"ready\n"
    front.send_signal(signal.SIGUSR1)
    assert front.stdout.readline() == b"usr1\n"
    front.send_signal(signal.SIGINT)
    assert front.wait(20) == 33


def test_the_program_finds_the_world_as_without_trainmon(state: State) -> None:
    script = (
        "import os, signal\n"
        "print([signal.getsignal(s) is signal.SIG_DFL for s in (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1)],"
        " signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.pthread_sigmask(0, []),"
        " os.getcwd(), os.getpgrp() == os.getpid(), os.environ['TRAINMON_RUN'])\n"
    )
    told = state.run(*python(script)).stdout.decode()
    assert told.split(" ", 3)[:3] == ["[True,", "True,", "True]"]
    assert told.split("] ", 1)[1] == f"True set() {Path(__file__).resolve().parents[2]} False {state.only}\n"


def test_inherited_descriptors_reach_the_program(state: State) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    state.run(*python(f"import os; os.write({writing}, b'through\\n')"), close_fds=False)
    os.close(writing)
    assert os.read(reading, 100) == b"through\n"
    os.close(reading)


def test_a_program_that_wants_a_terminal(state: State) -> None:
    script = "import os, sys; print(sys.stdout.isatty(), tuple(os.get_terminal_size()), open('/dev/tty').isatty())"
    ended = state.run(*python(script), options=("--pty",))
    assert ended.stdout == b"True (120, 40) True\n"
    assert (state.only / "console.log").read_bytes() == ended.stdout


def test_two_at_once(state: State) -> None:
    fronts = [state.start("sh", "-c", f"sleep 0.3; echo {n}; exit {n}") for n in (3, 4)]
    for n, front in zip((3, 4), fronts, strict=True):
        out, _ = front.communicate(timeout=20)
        assert (front.returncode, out) == (n, f"{n}\n".encode())
    assert len(state.runs()) == 2


def test_secrets_are_not_written_down(state: State) -> None:
    token = "hf_" + "a1" * 17
    state.run("true", "--hub-token", "hunter2", "--api-key=hunter3", token, "--lr", "0.1")
    written = (state.only / rundir.IDENTITY).read_text()
    assert "hunter" not in written
    assert token not in written
    assert "0.1" in written


def test_what_the_person_said_is_kept(state: State) -> None:
    options = ("--name", "my run", "--price", "2.5", "--expect-tps", "1000", "--tag", "lr=0.1", "--tag", "k=a=b")
    state.run("true", options=options)
    identity = rundir.read_json(state.only / rundir.IDENTITY) or {}
    assert (identity["name"], identity["price"], identity["expect_tps"]) == ("my run", 2.5, 1000)
    assert identity["tags"] == {"lr": "0.1", "k": "a=b"}


def test_a_flood_does_not_wait_for_its_reader(state: State) -> None:
    """The training's own pace is set by its file, not by whoever reads trainmon's output."""
    front = state.start("sh", "-c", "head -c 20000000 /dev/zero; exit 9")
    wait_for(lambda: state.ended(state.only) is not None)
    assert front.poll() is None, "the front still has output to hand over"
    out, _ = front.communicate(timeout=30)
    assert (front.returncode, len(out)) == (9, 20_000_000)


def test_the_first_signal_is_not_lost(state: State) -> None:
    """A signal right after the start ends the training, not the front alone."""
    before = time.monotonic()
    front = state.start("sleep", "60")
    front.send_signal(signal.SIGTERM)
    assert front.wait(30) == 128 + signal.SIGTERM
    assert time.monotonic() - before < 50
