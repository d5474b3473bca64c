"""The keys that a user has chosen, checked against the table of all keys. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from string import ascii_lowercase

from monitor.keymap import DEFAULT_KEYS, FIXED_KEYS

# Keys with names. Most terminals do not distinguish others.
NAMED_KEYS = (
    "space", "enter", "tab", "shift+tab", "escape", "backspace", "delete", "insert", "up", "down", "left", "right",
    "home", "end", "pageup", "pagedown", *(f"f{number}" for number in range(1, 13)),
    *(f"ctrl+{letter}" for letter in ascii_lowercase),
)  # fmt: skip


class BadKey(ValueError):
    """A key cannot be assigned; the message says why in one line."""


def assigned_keys(given: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Return all keys, with the given ones in place of the defaults; a default key assigned elsewhere is removed.

    Raises:
        BadKey: a key is unknown, fixed or assigned twice, or an action would be left without one.
    """
    chosen = {name: _keys(name, value) for name, value in given.items()}
    taken: dict[str, str] = {}
    for name, keys in chosen.items():
        for key in keys:
            other = taken.setdefault(key, name)
            if other != name:
                raise BadKey(f"{key!r} is assigned to both {other} and {name}")
    kept = {name: tuple(key for key in keys if taken.get(key, name) == name) for name, keys in DEFAULT_KEYS.items()}
    kept |= chosen
    for name, keys in kept.items():
        if not keys:
            lost = DEFAULT_KEYS[name][0]
            raise BadKey(f'{lost!r} is the only key of {name}; assign another one to it: {name} = "..."')
    return kept


def _keys(name: str, value: object) -> tuple[str, ...]:
    keys = value if isinstance(value, list) else [value]
    given = [key for key in keys if isinstance(key, str)]
    if not given or len(given) < len(keys):
        raise BadKey(f'{name} must be a key or a list of keys: {name} = "x" or ["x", "f5"]')
    for key in given:
        if key not in NAMED_KEYS and not (len(key) == 1 and key.isascii() and key.isprintable() and key != " "):
            raise BadKey(f"{name}: unknown key {key[:40]!r}{_nearest_key(key.lower(), NAMED_KEYS)}")
        if key in FIXED_KEYS and key not in DEFAULT_KEYS[name]:
            raise BadKey(f"{name}: {key!r} cannot be reassigned; press ? in the dashboard for all keys")
    return tuple(dict.fromkeys(given))


def _nearest_key(key: str, known: Iterable[str]) -> str:
    near = get_close_matches(key, known, 1)
    return f"; did you mean {near[0]}?" if near else '; a key is one character or a name such as "space" or "f5"'
