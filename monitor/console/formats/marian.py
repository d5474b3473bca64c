"""Read the lines of Marian, which trains in C++: `Ep. 1 : Up. 100 : Sen. 12,800 : Cost 8.1 : Time 34.93s : ...`."""

from __future__ import annotations

import re
from typing import ClassVar

from monitor.console.field_mapping import set_value
from monitor.console.formats import Format, register
from monitor.console.printed_values import NONFINITE, NUMBER, number
from monitor.console.reading import Reading

_LINE = re.compile(
    r"Ep\. (?P<epoch>\d{1,7}) : Up\. (?P<step>\d{1,12}) : Sen\. (?P<samples>[\d,]{1,20})"
    rf" : Cost (?P<cost>{NONFINITE}|{NUMBER})(?P<rest>[^\n]{{0,400}})"
)
# In the rest: words a second, the learning rate, the norm of the gradients.
_REST = {
    "words": re.compile(rf"({NUMBER}) words/s"),
    "lr": re.compile(rf"L\.r\. ({NUMBER})"),
    "grad_norm": re.compile(rf"gNorm ({NONFINITE}|{NUMBER})"),
}


@register
class Marian(Format):
    """An update, its number counted over all epochs."""

    order: ClassVar[int] = 72  # before named values, which read its abbreviations as prose

    def read(self, text: str) -> list[Reading] | None:
        match = _LINE.search(text) if "Up. " in text else None
        if match is None:
            return None
        reading = Reading("step", step=int(match["step"]), key="step", epoch=float(match["epoch"]))
        reading.samples_total = float(match["samples"].replace(",", ""))
        values = {"cost": match["cost"]}
        for called, pattern in _REST.items():
            found = pattern.search(match["rest"])
            if found is not None:
                values[called] = found[1]
        for called, text_of in values.items():
            value = number(text_of)
            if value is not None:
                set_value(reading, "tokens/s" if called == "words" else called, value)
        return [reading]
