"""Whatever lies where a person works: trainmon finds its own modules there, and the person's program its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from monitor.alerts import LOG_NAME as ALERTS_LOG
from monitor.entry import ordered
from tests.signals import send_group_signal
from trainhooks.protocol import rundir

from .conftest import ROOT, State, wait_for

pytestmark = pytest.mark.long

# What trainmon imports, of its own, of others' and of the standard library; and what the hooks do.
NAMES = ("monitor", "trainhooks", "click", "platformdirs", "psutil", "zmq", "msgspec", "textual", "rich", "plotext")
NAMES += ("pynvml", "queue", "statistics", "select", "shlex", "termios")
CONSOLE_SCRIPT = ROOT / "monitor" / "console_script"
POISON = "open({log!r}, 'a').write({name!r} + '\\n')\nraise RuntimeError('this is not for trainmon')\n"


@dataclass
class Place:
    """A directory with modules of a person's own, and trainmon called there with PYTHONPATH=. ."""

    path: Path
    state: State
    trainmon: list[str]

    @property
    def environment(self) -> dict[str, str]:
        return {**self.state.environment, "PYTHONPATH": "."}

    @property
    def log(self) -> Path:
        """Holds the name of each module of the person's that was run, but should not be."""
        return self.path / "was-run"

    @property
    def run(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def poison(self, *names: str, packages: bool = False) -> None:
        for name in names:
            file = self.path / name / "__init__.py" if packages else self.path / f"{name}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(POISON.format(log=str(self.log), name=name))

    def write(self, name: str, source: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(source)

    def call(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.trainmon, *words],
            env={**self.environment, **environment},
            cwd=self.path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def train(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.call("run", "--no-tui", "--", sys.executable, *command, **environment)

    def report(self) -> dict[str, dict[str, object]]:
        told = self.call("report", "--json", "last")
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)  # type: ignore[no-any-return]

    def steps_done(self) -> object:
        return self.report()["progress"]["steps_done"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    building = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(place)]
    subprocess.run(building, cwd=ROOT, check=True, capture_output=True)
    (built,) = place.glob("*.whl")
    return built


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `trainmon` command of an environment of its own, as pip installs it."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", place], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))  # those alone: no .pth file there is read
    what = [str(wheel)] if request.param == "wheel" else ["--no-build-isolation", "--editable", str(ROOT)]
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-index", "--no-deps", "--ignore-installed", *what], check=True, capture_output=True)
    return place / "bin" / "trainmon"


@pytest.fixture
def place(tmp_path: Path, state: State, installed: Path) -> Place:
    (tmp_path / "work").mkdir()
    return Place(tmp_path / "work", state, [str(installed)])


@pytest.fixture
def checkout(tmp_path: Path, state: State) -> Place:
    """Without an environment of its own, for what concerns the person's program."""
    (tmp_path / "work").mkdir()
    command = f"import sys; sys.path.append({str(CONSOLE_SCRIPT)!r}); from _trainmon_entry import main; main()"
    return Place(tmp_path / "work", state, [sys.executable, "-c", command])


# The command and its processes


@pytest.mark.parametrize("packages", [False, True], ids=["modules", "packages"])
def test_commands_run_where_modules_have_the_names_of_ours(place: Place, packages: bool) -> None:
    place.poison(*NAMES, packages=packages)
    ended = place.call("run", "--no-tui", "--", "sh", "-c", "for i in 1 2 3; do echo step $i/3 loss 0.$i; done")
    assert ended.returncode == 0 and ended.stdout.count("step") == 3, ended.stderr
    assert place.steps_done() == 3
    for words in (["--version"], ["ls"], ["report"], ["attach", "--once", "last"], ["explain", "stalled"]):
        told = place.call(*words)
        assert (told.returncode, "Traceback" in told.stderr) == (0, False), (words, told.stderr)
    assert place.run == ""


def test_with_a_safe_path_too(place: Place) -> None:
    place.poison(*NAMES)
    assert place.call("run", "--no-tui", "--", "true", PYTHONSAFEPATH="1").returncode == 0
    assert place.run == ""


def test_a_sitecustomize_that_imports_the_person_s_monitor(place: Place) -> None:
    place.write("monitor.py", "")
    place.write("sitecustomize.py", "import monitor\n")
    told = place.call("--version")
    assert told.stdout.startswith("trainmon "), told.stderr


def test_a_recorder_that_is_replaced(place: Place) -> None:
    place.poison(*NAMES)
    words = [*place.trainmon, "run", "--no-tui", "--", "sleep", "60"]
    front = subprocess.Popen(words, env=place.environment, cwd=place.path, stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: place.state.runs() and place.state.pid(place.state.only))
        killed = place.state.strike(place.state.only, signal.SIGKILL)
        wait_for(lambda: place.state.supervisor(place.state.only) not in (0, killed), 20)
        assert place.run == ""
    finally:
        send_group_signal(place.state.pid(place.state.only), signal.SIGKILL)
        front.wait(30)


def test_a_command_for_alerts_is_told_and_finds_what_the_person_put_on_the_path(place: Place) -> None:
    place.poison(*NAMES)
    place.write("monitor.py", "WHOSE = 'mine'\n")
    place.write("tell.py", "import monitor\nprint(monitor.WHOSE)\n")
    told = place.call("run", "--no-tui", "--on-alert", f"{sys.executable} tell.py", "--", "sleep", "1")
    assert told.returncode == 0, told.stderr
    log = place.state.only / ALERTS_LOG
    wait_for(lambda: log.exists() and log.read_text() == "mine\n", 20)
    assert place.run == ""


def test_the_doctor_sees_locks(place: Place) -> None:
    place.poison(*NAMES)
    told = place.call("doctor", "--python", "/bin/false", "--json")
    (locks,) = [row for row in json.loads(told.stdout)["checks"] if row["part"] == "locks"]
    assert locks["state"] == "works"
    assert place.run == ""


def test_the_dashboard_is_drawn(place: Place) -> None:
    pexpect = pytest.importorskip("pexpect")
    place.poison(*NAMES)
    words = ["run", "--", "sleep", "60"]
    environment = {**place.environment, "TERM": "xterm-256color"}
    front = pexpect.spawn(
        place.trainmon[0], words, env=environment, cwd=str(place.path), timeout=60, dimensions=(40, 120)
    )
    front.expect("RUNNING")
    front.close(force=True)
    assert place.run == ""


def test_python_m_monitor_in_a_checkout(checkout: Place) -> None:
    checkout.poison(*NAMES)
    words = [sys.executable, "-m", "monitor", "run", "--no-tui", "--", "true"]
    environment = {**checkout.environment, "PYTHONPATH": str(checkout.path)}
    ended = subprocess.run(words, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True)
    assert ended.returncode == 0, ended.stderr
    assert checkout.run == ""


def test_python_m_monitor_in_a_person_s_directory(checkout: Place) -> None:
    checkout.poison(*(name for name in NAMES if name != "monitor"))
    words = [sys.executable, "-m", "monitor", "run", "--no-tui", "--", "true"]
    environment = {**checkout.environment, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(words, env=environment, cwd=checkout.path, stdin=subprocess.DEVNULL, capture_output=True)
    assert ended.returncode == 0, ended.stderr
    assert checkout.run == ""


def test_what_is_installed_comes_before_what_is_lent() -> None:
    def order(path: str, lent: str, home: str = "/site") -> str:
        return " ".join(ordered(path.split(), lent.split(), ["/lib", "/site"], home))

    assert order("/bin /mine /lib /site", "/bin /mine") == "/lib /site /bin /mine"
    assert order("/mine /site /lib", "/mine /site") == "/site /lib /mine"  # named on PYTHONPATH, but installed
    assert order("/mine /target /lib /site", "/mine /target", "/target") == "/lib /site /target /mine"
    assert order("/lib /site", "", "/checkout") == "/lib /site /checkout"


def test_both_packages_are_typed_for_those_who_import_them(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"monitor/py.typed", "trainhooks/py.typed", "_trainmon_entry.py"} <= set(names)
    assert len(names) == len(set(names))


# The program

STEPS = "import trainhooks as th\nfor i in th.steps(range(5)):\n    pass\n"
MINE = "import monitor\nassert monitor.WHOSE == 'mine', monitor\n"


@pytest.mark.parametrize("how", ["script", "package", "path", "safe path"])
def test_the_program_finds_its_own_monitor_and_the_hooks(checkout: Place, how: str) -> None:
    home = {"script": "code/", "package": "", "path": "", "safe path": ""}[how]
    checkout.write(f"{home}monitor.py", "WHOSE = 'mine'\n")
    script = {"script": "code/train.py", "package": "mine/__main__.py"}.get(how, "elsewhere/train.py")
    checkout.write(script, MINE + STEPS + "print('done')\n")
    more = {"PYTHONSAFEPATH": "1"} if how == "safe path" else {}
    words = ["-m", "mine"] if how == "package" else [script]
    ended = checkout.train(*words, **more)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
    assert checkout.steps_done() == 5


def test_workers_that_are_spawned_find_it_too(checkout: Place) -> None:
    checkout.write("code/monitor.py", "WHOSE = 'mine'\n")
    checkout.write(
        "code/train.py",
        "import multiprocessing\n"
        "def work():\n    import monitor\n    print(monitor.WHOSE, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    worker = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    worker.start()\n    worker.join()\n",
    )
    assert checkout.train("code/train.py").stdout == "mine\n"


def test_the_hooks_run_no_module_of_the_program_s_in_place_of_a_library(checkout: Place) -> None:
    checkout.poison("zmq", "msgspec", "psutil")
    checkout.write("train.py", STEPS)
    assert checkout.train("train.py", TRAINMON_DEBUG="1").stderr.startswith("trainmon: ")
    assert checkout.run == ""
    assert checkout.steps_done() == 5


def test_modules_of_the_program_s_that_are_loaded_are_not_taken_for_libraries(checkout: Place) -> None:
    for name in ("zmq", "msgspec"):
        checkout.write(f"{name}.py", "")
    checkout.write("train.py", "import msgspec, zmq\n" + STEPS)
    assert checkout.train("train.py", TRAINMON_DEBUG="1").stderr.startswith("trainmon: ")
    assert checkout.steps_done() == 5


# A `trainhooks` of the program's own

FORMS = {"a module": "trainhooks.py", "a package": "trainhooks/__init__.py"}


def note(run: Path) -> list[str]:
    journal = run / "own-trainhooks.jsonl"
    return [json.loads(line)["kind"] for line in journal.read_text().splitlines()] if journal.exists() else []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("first", ["torch", "trainhooks"])
def test_the_program_keeps_its_own_trainhooks_and_one_note_says_so(checkout: Place, form: str, first: str) -> None:
    checkout.write(f"code/{FORMS[form]}", "print('trainhooks is run')\nWHOSE = 'mine'\n")
    checkout.write("code/torch.py", "")  # what the hooks wait for
    lines = ["import torch", "import trainhooks"]
    lines = lines if first == "torch" else lines[::-1]
    source = "\n".join([*lines, "print(trainhooks.WHOSE)", "print('step 1/2 loss 0.5')", "print('step 2/2 loss 0.4')"])
    checkout.write("code/train.py", source)
    ended = checkout.train("code/train.py", TRAINMON_DEBUG="1")
    assert ended.stdout == "trainhooks is run\nmine\nstep 1/2 loss 0.5\nstep 2/2 loss 0.4\n", ended.stderr
    assert ended.returncode == 0 and "Traceback" not in ended.stderr
    assert note(checkout.state.only) == ["hello", "note", "bye"]
    assert checkout.steps_done() == 2  # as printed
    assert str(checkout.path / "code" / "trainhooks") in checkout.call("report").stdout.replace("\n", "")


def test_a_trainhooks_that_the_program_never_imports_is_not_run(checkout: Place) -> None:
    checkout.poison("trainhooks")
    checkout.write("torch.py", "")
    checkout.write("train.py", "import torch\n")
    assert checkout.train("train.py", TRAINMON_DEBUG="1").returncode == 0
    assert checkout.run == ""
    (finding,) = [row for row in checkout.report()["findings"] if row["code"] == "nothing-reports"]  # type: ignore[index]
    assert str(checkout.path / "trainhooks.py") in finding["evidence"][0]  # type: ignore[index]
    assert finding["advice"].startswith("Rename")  # type: ignore[index]


def test_a_directory_named_trainhooks_without_modules_does_no_harm(checkout: Place) -> None:
    checkout.write("trainhooks/notes.txt", "")
    checkout.write("train.py", STEPS)
    assert checkout.train("train.py").returncode == 0
    assert checkout.steps_done() == 5


def test_ranks_of_torchrun_keep_theirs_and_tell_it_once(checkout: Place) -> None:
    pytest.importorskip("torch")
    checkout.write("code/trainhooks.py", "WHOSE = 'mine'\n")
    checkout.write("code/monitor.py", "WHOSE = 'mine'\n")
    source = "import torch, trainhooks, monitor\nprint(f'{trainhooks.WHOSE} {monitor.WHOSE}\\n', end='')\n"
    checkout.write("code/train.py", source)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    ended = checkout.train(*torchrun, "code/train.py")
    assert ended.stdout == "mine mine\n" * 2, ended.stderr
    assert note(checkout.state.only) == ["hello", "note", "bye"]


def test_an_unmodified_program_with_a_monitor_of_its_own_is_timed(checkout: Place) -> None:
    pytest.importorskip("torch")
    checkout.write("monitor.py", "WHOSE = 'mine'\n")
    checkout.write(
        "train.py",
        MINE + "import torch\nmodel = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(4):\n"
        "    optimizer.zero_grad()\n    model(torch.ones(2, 4)).sum().backward()\n    optimizer.step()\n",
    )
    assert checkout.train("train.py").returncode == 0
    assert checkout.steps_done() == 4
    assert rundir.journals(checkout.state.only)[0].name.startswith("rank-0-")
    assert note(checkout.state.only) == []
