"""The keys that a person may choose: what each does as it comes, and what is wrong with a choice. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from string import ascii_lowercase

# What a key does everywhere, by the name it has in the configuration.
DEFAULT: dict[str, tuple[str, ...]] = {
    "detach": ("q", "ctrl+q"),
    "help": ("?", "f1"),
    "why": ("w",),
    "steps": ("s",),
    "phases": ("b",),
    "metrics": ("c",),
    "gpus": ("u",),
    "ranks": ("r",),
    "console": ("l",),
    "setup": ("i",),
    "palette": (":", "ctrl+p"),
    "pause": ("p", "space"),
    "full": ("f", "z", "enter"),
    "next_metric": ("m",),
    "choose_metric": ("M",),
    "theme": ("t",),
    "cursor_left": ("left", "["),
    "cursor_right": ("right", "]"),
}
# Keys with a meaning that stays: panels, moving about, what single screens and a replay do, the way out.
FIXED = frozenset((
    "1", "2", "3", "4", "5", "6", "7", "8", "tab", "shift+tab", "up", "down", "j", "k", "pageup", "pagedown", "home",
    "end", "g", "G", "escape", "o", "enter", "left", "right", "ctrl+c", "shift+left", "shift+right", "/", "<", ">", "v",
    "x", "y", "n", "N", "d", "h", ".", ",", "+", "-", "(", ")",
))  # fmt: skip
# Keys with names. Terminals tell few others from each other.
NAMED = (
    "space", "enter", "tab", "shift+tab", "escape", "backspace", "delete", "insert", "up", "down", "left", "right",
    "home", "end", "pageup", "pagedown", *(f"f{number}" for number in range(1, 13)),
    *(f"ctrl+{letter}" for letter in ascii_lowercase),
)  # fmt: skip


class BadKey(ValueError):
    """What is wrong with a choice, in one line."""


def chosen(given: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """All keys, those given in place of what is the default; a key that was taken from another action is gone there.

    Raises:
        BadKey: there is no such key, it has another meaning already, or an action would be left without one.
    """
    told = {name: _keys(name, value) for name, value in given.items()}
    taken: dict[str, str] = {}
    for name, keys in told.items():
        for key in keys:
            other = taken.setdefault(key, name)
            if other != name:
                raise BadKey(f"{key!r} is given to {other} and to {name}")
    kept = {name: tuple(key for key in keys if taken.get(key, name) == name) for name, keys in DEFAULT.items()}
    kept |= told
    for name, keys in kept.items():
        if not keys:
            lost = DEFAULT[name][0]
            raise BadKey(f'{lost!r} is the only key of {name}; give that one another, too: {name} = "..."')
    return kept


def _keys(name: str, value: object) -> tuple[str, ...]:
    told = value if isinstance(value, list) else [value]
    given = [key for key in told if isinstance(key, str)]
    if not given or len(given) < len(told):
        raise BadKey(f'{name} has to be a key, or a list of keys: {name} = "x" or ["x", "f5"]')
    for key in given:
        if key not in NAMED and not (len(key) == 1 and key.isascii() and key.isprintable() and key != " "):
            raise BadKey(f"{name}: there is no key {key[:40]!r}{_nearest(key.lower(), NAMED)}")
        if key in FIXED and key not in DEFAULT[name]:
            raise BadKey(f"{name}: {key!r} has a meaning that stays; ? in the dashboard tells all keys")
    return tuple(dict.fromkeys(given))


def _nearest(key: str, known: Iterable[str]) -> str:
    near = get_close_matches(key, known, 1)
    return f"; did you mean {near[0]}?" if near else '; a key is one character, or a name such as "space" or "f5"'
