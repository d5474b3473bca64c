"""Each how-to page is followed to the letter, in a copy of the tree: its files are written and its test passes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {  # with the tests that look at all of its kind
    "finding": ["tests/test_explain.py", "tests/model/test_every_code.py"],
    "console-format": ["tests/console/test_formats.py"],
    "framework-adapter": [],
    "panel": ["tests/tui/test_tui_layout.py"],
}
PATH = re.compile(r"`((?:monitor|trainhooks|tests)/[\w./-]+\.\w+)`")


def files(page: str) -> dict[str, str]:
    """Return the files that a page tells to write: a block belongs to the first path of the item before it."""
    found, path, block = {}, "", None
    for line in page.splitlines():
        if block is not None:
            if line == "```":
                if path:
                    found[path] = "\n".join(block) + "\n"
                block, path = None, ""
            else:
                block.append(line)
        elif line.startswith("```"):
            block = []
        elif re.match(r"(\d+\.|\*\*\d+\.)", line):
            named = PATH.search(line)
            path = named[1] if named else ""
    return found


@pytest.mark.long
@pytest.mark.timeout(600)  # some pages name tests that take a while
@pytest.mark.parametrize("kind", PAGES)
def test_a_how_to_page_followed_to_the_letter_works(kind: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    written = files((ROOT / "docs" / f"how-to-{kind}.md").read_text())
    assert len(written) >= 2
    for name, text in written.items():
        assert not (copy / name).exists(), f"{name} is taken; the page needs another example"
        (copy / name).write_text(text)

    def run(*words: str) -> None:
        done = subprocess.run([sys.executable, "-m", *words], cwd=copy, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    if kind == "finding":
        run("tests.findings_list")
    tests = [name for name in written if name.startswith("tests/") and name.endswith(".py")]
    run("pytest", "-q", "-p", "no:cacheprovider", *tests, *(name for name in PAGES[kind] if (copy / name).exists()))
    run("ruff", "check", *(name for name in written if name.endswith(".py")))
