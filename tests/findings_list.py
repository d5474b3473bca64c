"""The list of findings in docs/findings.md, made from rules and pages. Renew it: python -m tests.findings_list"""

from __future__ import annotations

from pathlib import Path

from monitor.diagnosis import explain
from monitor.diagnosis.diagnose import RULES
from monitor.diagnosis.explain import CODES, FAMILIES
from monitor.diagnosis.rule import Suppress
from monitor.diagnosis.verdict import NO_FINDING

PATH = Path(__file__).resolve().parents[1] / "docs" / "findings.md"
HEAD = f"""# Findings

trainmon reports {len(CODES) - 1} findings. Each has a page with its meaning, detection, fix and cost:
`trainmon explain CODE`. To add one: [how-to-finding.md](how-to-finding.md).

This list is made from the rules and their pages: `python -m tests.findings_list` renews it.
"""


HIDING = """## Which finding hides which

A finding that another one explains is not shown, so that one problem has one name. The one that hides is a warning or
worse, unless its row says otherwise.

| finding | hides | where |
|---|---|---|
"""


def _where(row: Suppress) -> str:
    parts = [f"it points at {', '.join(f'`{each}`' for each in row.culprits)}"] if row.culprits else []
    parts += ["both point at the same phase"] if row.same_culprit else []
    parts += ["it is information"] if row.only_info else []
    parts += ["those that explain it cost most of it"] if row.if_most else []
    parts += ["nothing hides the finding itself"] if row.if_shown else []
    parts += ["also as information"] if row.if_info else []
    return ", ".join(parts)


def _hiding() -> str:
    rows: dict[tuple[str, str], list[str]] = {}
    for rule in sorted(RULES, key=lambda rule: rule.code):
        for row in rule.suppresses:
            rows.setdefault((rule.code, _where(row)), []).extend(f"`{code}`" for code in row.codes)
    return HIDING + "".join(f"| `{code}` | {', '.join(codes)} | {where} |\n" for (code, where), codes in rows.items())


def text() -> str:
    """Return the document: a table for each family of findings, and which of them hide others."""
    lines = [HEAD]
    for family, codes in FAMILIES.items():
        rows = [f"| `{code}` | {explain.read_page(code).line} |" for code in codes if code != NO_FINDING]
        lines += [f"## {family}\n\n| code | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"]
    return "\n".join([*lines, _hiding()])


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
    print(PATH)
