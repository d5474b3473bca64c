"""Pictures of Rich's that load nothing from the network."""

from __future__ import annotations

import re

_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def without_fonts(picture: str) -> str:
    """Return a picture without the fonts that Rich has loaded: those of whoever looks at it are used."""
    return _FONTS.sub("", picture)
