"""A number on the command line, as all verbs take it."""

from __future__ import annotations

import math
from typing import Any

import click


class Amount(click.FloatRange):
    """A range of numbers; `nan` and `inf` are none, and no journal or report could hold them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a number", param, ctx)
        return found
