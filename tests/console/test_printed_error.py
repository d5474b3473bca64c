"""The error in the last lines of an output: found where it ended the program, and nowhere else."""

from __future__ import annotations

import pytest

from monitor.console.printed_error import PrintedError, printed_error

TRACE = """Traceback (most recent call last):
  File "/job/train.py", line 30, in <module>
    main()
    ~~~~^^
  File "/job/model.py", line 12, in forward
    return self.layer(x)
  File "/env/lib/python3.12/site-packages/torch/nn/modules/linear.py", line 125, in forward
    return F.linear(input, self.weight, self.bias)
torch.cuda.OutOfMemoryError: CUDA out of memory.
"""
CAUSE = TRACE.replace("torch.cuda.OutOfMemoryError: CUDA out of memory.", "KeyError: 'x'")
CHAINED = CAUSE + "\nThe above exception was the direct cause of the following exception:\n\n" + TRACE
LAUNCHER = """Traceback (most recent call last):
  File "/env/bin/torchrun", line 7, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""
FOUND = PrintedError("OutOfMemoryError: CUDA out of memory.", "model.py:12 in forward")


def of_rank(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("step 1\n" + TRACE, FOUND, id="the last thing"),
        pytest.param("\r 40%|####  | 40/100" + TRACE + "\n", FOUND, id="after a bar"),
        pytest.param(CHAINED, FOUND, id="of a chain the last one"),
        pytest.param(TRACE + LAUNCHER + "=" * 60 + "\n" + "x\n" * 30, FOUND, id="before what a launcher says"),
        pytest.param(of_rank(1, TRACE) + of_rank(0, CAUSE), FOUND, id="of ranks the first one"),
        pytest.param("step 1\nstep 2\n", None, id="nothing"),
        pytest.param(TRACE + "step 3\n" * 20, None, id="survived"),
        pytest.param(TRACE + "\r 1%|#|" * 20, None, id="survived, by a bar"),
        pytest.param("Traceback (most recent call last):\nstep 3", None, id="broken off"),
    ],
)  # fmt: skip
def test_the_error_that_ended_it(text: str, expected: PrintedError | None) -> None:
    assert printed_error(text, "/job") == expected


def test_a_rank_that_a_signal_ended_comes_before_the_errors_of_others() -> None:
    text = of_rank(0, CAUSE) + "E1124 failed (exitcode: -11) local_rank: 1 (pid: 7) of binary: python\n" + LAUNCHER
    found = printed_error(text, "/job")
    assert found is not None and found.error == "rank ended by SIGSEGV: local rank 1"


def test_a_collective_that_timed_out_comes_before_what_follows_from_it() -> None:
    text = "[rank3]:[E1] [Rank 3] Watchdog caught collective operation timeout: Work\n" + of_rank(3, TRACE)
    found = printed_error(text, "/job")
    assert found is not None and found.error.startswith("Watchdog caught collective operation timeout")


def test_a_secret_in_a_message_is_masked() -> None:
    found = printed_error(TRACE.replace("CUDA out of memory.", "login(token='hf_abcdefghijklmnopqrstu')"), "/job")
    assert found is not None and "abcdefgh" not in found.error


@pytest.mark.parametrize(
    "said",
    [
        "can't open file '/job/trian.py': [Errno 2] No such file or directory",
        "No module named trian",
        "Error while finding module specification for 'a.b' (ModuleNotFoundError: No module named 'a')",
    ],
)
def test_a_mistake_in_the_command(said: str) -> None:
    found = printed_error(f"/opt/venv/bin/python3.12: {said}\n", "/job")
    assert found is not None and found.error == f"Python did not start the program: {said}"
    assert printed_error(f"/opt/venv/bin/python3.12: {said}\nstep 1 loss 2\n", "/job") is None  # another one's
