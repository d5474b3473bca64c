"""The list of findings in docs/findings.md, made from rules and pages. Renew it: python -m tests.findings_list"""

from __future__ import annotations

from pathlib import Path

from monitor.diagnosis import explain
from monitor.diagnosis.explain import CODES, FAMILIES
from monitor.diagnosis.verdict import NO_FINDING

PATH = Path(__file__).resolve().parents[1] / "docs" / "findings.md"
HEAD = f"""# Findings

trainmon reports {len(CODES) - 1} findings. Each has a page with its meaning, detection, fix and cost:
`trainmon explain CODE`. To add one: [how-to-finding.md](how-to-finding.md).

This list is made from the rules and their pages: `python -m tests.findings_list` renews it.
"""


def text() -> str:
    """Return the document: a table for each family of findings."""
    lines = [HEAD]
    for family, codes in FAMILIES.items():
        rows = [f"| `{code}` | {explain.read_page(code).line} |" for code in codes if code != NO_FINDING]
        lines += [f"## {family}\n\n| code | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"]
    return "\n".join(lines)


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
    print(PATH)
