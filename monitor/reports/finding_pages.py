"""The pages of findings, as text of a given width."""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import wrap

from monitor.diagnosis.explain import FAMILIES, Page, read_page

Style = Callable[[str], str]

_CODE = re.compile(r"`[^`]*`")
_HARD_SPACE = "\N{NO-BREAK SPACE}"


def page_text(shown: Page, width: int, strong: Style | None = None) -> str:
    """Return one page; without a style for headings as Markdown."""
    title = f"{shown.code}: {shown.line}"
    lines = [strong(title) if strong is not None else f"# {title}"]
    for heading, body in shown.sections:
        lines += ["", strong(heading) if strong is not None else f"## {heading}", *_body(body, width)]
    return "\n".join(lines) + "\n"


def list_text(strong: Style | None = None) -> str:
    """Return every code with its one line, by family."""
    widest = max(len(code) for codes in FAMILIES.values() for code in codes)
    lines: list[str] = []
    for family, codes in FAMILIES.items():
        lines += ["", strong(family) if strong is not None else family]
        for shown in map(read_page, codes):
            lines.append(f"  {shown.code.ljust(widest)}  {shown.line}")
    return "\n".join([*lines[1:], "", "Full page: trainmon explain CODE"]) + "\n"


def _body(body: str, width: int) -> list[str]:
    """Return paragraphs and lists, filled to the width: inserted numbers change the lengths of lines."""
    lines: list[str] = []
    for block in re.split(r"\n(?=- |\n)", body):
        indent = "  " if block.startswith("- ") else ""
        whole = _CODE.sub(lambda found: _together(found[0], width), " ".join(block.split()))
        filled = wrap(whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        lines += [line.replace(_HARD_SPACE, " ") for line in filled]
    return lines


def _together(code: str, width: int) -> str:
    """Return code protected from line breaks, unless it is longer than half a line."""
    return code.replace(" ", _HARD_SPACE) if 2 * len(code) <= width else code
