"""Every claim of SECURITY.md names a test, and that test exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def named_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall(TEXT)
    assert len(named) > 20
    for path, name in named:
        assert name in named_in(ROOT / path), f"{path}::{name}"


def test_every_claim_names_a_test() -> None:
    holds = TEXT.partition("## What holds")[2].partition("## Out of scope")[0]
    claims = re.split(r"^\* ", holds, flags=re.MULTILINE)[1:]
    assert len(claims) > 20
    for claim in claims:
        claim = claim.partition("\n###")[0]
        assert NAMED.search(claim) or "(the same tests)" in claim, claim
