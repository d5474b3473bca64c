"""The page of a finding, and the list of all pages, as text of a given width. Pure, but for reading the pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import wrap

from monitor.diagnosis.explain import FAMILIES, Page, page

Style = Callable[[str], str]

_CODE = re.compile(r"`[^`]*`")
_HARD_SPACE = "\N{NO-BREAK SPACE}"
NOT_YET_MARK = " *"


def page_text(shown: Page, width: int, strong: Style | None = None) -> str:
    """One page. Without a style for headings it stays the Markdown that it is."""
    title = f"{shown.code}: {shown.line}"
    lines = [strong(title) if strong is not None else f"# {title}"]
    for heading, body in shown.sections:
        lines += ["", strong(heading) if strong is not None else f"## {heading}", *_body(body, width)]
    return "\n".join(lines) + "\n"


def list_text(strong: Style | None = None) -> str:
    """Every code with its one line, by family."""
    widest = max(len(code) for codes in FAMILIES.values() for code in codes)
    lines: list[str] = []
    for family, codes in FAMILIES.items():
        lines += ["", strong(family) if strong is not None else family]
        for shown in map(page, codes):
            lines.append(f"  {shown.code.ljust(widest)}  {shown.line}" + ("" if shown.detected else NOT_YET_MARK))
    if any(line.endswith(NOT_YET_MARK) for line in lines):
        lines += ["", f"{NOT_YET_MARK.strip()} explained, but not detected by this version"]
    return "\n".join([*lines[1:], "", "One of them in full: trainmon explain CODE"]) + "\n"


def _body(body: str, width: int) -> list[str]:
    """Paragraphs and lists, filled anew: numbers in the place of their names have changed the lines' lengths."""
    lines: list[str] = []
    for block in re.split(r"\n(?=- |\n)", body):
        indent = "  " if block.startswith("- ") else ""
        whole = _CODE.sub(lambda found: _together(found[0], width), " ".join(block.split()))
        filled = wrap(whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        lines += [line.replace(_HARD_SPACE, " ") for line in filled]
    return lines


def _together(code: str, width: int) -> str:
    """A piece of code that is not to be torn apart at a line's end, unless it is longer than half a line."""
    return code.replace(" ", _HARD_SPACE) if 2 * len(code) <= width else code
