"""Models and functions of torch under trainmon: pickled, copied, sent to processes and inspected as without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .watched import LIMIT, SCRIPTS, both, watched

pytest.importorskip("torch")

# A process without trainmon: its modules cannot be imported.
ALONE = "import sys; sys.path[:0] = [sys.argv[1]]; sys.modules.update(trainhooks=None, monitor=None)\n"
LOAD = ALONE + "import saved as program; vars(sys.modules['__main__']).update(vars(program)); program.load(sys.argv[2])"
UNPICKLE = (
    ALONE
    + """
import pickle, torch
save, *_ = pickle.load(open(sys.argv[2] + '/functions.pickle', 'rb'))
print(save is torch.save, save.__code__.co_filename == torch.serialization.__file__)
"""
)


def alone(source: str, directory: Path) -> list[str]:
    words = [sys.executable, "-c", source, str(SCRIPTS), str(directory)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.long
def test_models_with_ways_of_their_own_of_being_saved(tmp_path: Path) -> None:
    run = both(tmp_path, "saved.py", "models", str(tmp_path))
    assert len(run.steps()) == 4 * 5
    assert "False" not in run.out
    loaded = alone(LOAD, tmp_path)
    assert len(loaded) == 5 and all(line.endswith("True True") for line in loaded)


@pytest.mark.long
def test_the_functions_of_torch(tmp_path: Path) -> None:
    run = both(tmp_path, "saved.py", "functions", str(tmp_path))
    assert "False" not in [word for line in run.out.splitlines() for word in line.strip("[]").split(", ")]
    assert alone(UNPICKLE, tmp_path) == ["True True"]


@pytest.mark.long
@pytest.mark.parametrize("library", ["lightning", "ddp"])
def test_models_of_libraries(tmp_path: Path, library: str) -> None:
    if library == "lightning":
        pytest.importorskip("lightning")
    run = both(tmp_path, "saved.py", library, str(tmp_path))
    assert "True" in run.out and "False" not in run.out


@pytest.mark.long
def test_a_trainer_s_callback_loads_without_trainmon(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    source = "import pickle, transformers\nfrom transformers import Trainer\n"
    source += "import transformers.trainer as module\n"
    source += "print([type(pickle.loads(pickle.dumps(kind()))).__module__ for kind in module.DEFAULT_CALLBACKS])"
    (tmp_path / "callbacks.py").write_text(source)
    assert "trainhooks" not in watched(tmp_path / "state", str(tmp_path / "callbacks.py")).out
