"""Secrets in texts, command lines and configurations: recognized by their names and shapes, and masked. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Sequence

from trainhooks.protocol.limits import MAX_NAME, MAX_TEXT, clean, number

MASK = "***"
MAX_CONFIG = 200  # entries of a configuration that are kept

_SECRET_NAME = re.compile(
    r"(?:^|[_\-.])(?:[a-z]*api[_\- ]?keys?|(?:hf|hub|wandb|git|access|secret|private|signing|encryption|account|"
    r"service|storage|ssh|subscription|openai|anthropic|azure|aws|gcp|google|mistral|cohere|groq|together|replicate|comet|"
    r"neptune|mlflow|clearml|modal|runpod|vast|lambda|ngc|nvidia|kaggle|github|gitlab)[_\-]?key(?:[_\-](?:id|pem))?|"
    r"auth|authorization|bearer|cookie|jwt|credentials?|[a-z]*passw(?:or)?ds?|pwd|passphrase|[a-z]*secrets?|[a-z]*token|"
    r"(?:db|smtp|mail|mysql|pg|postgres|redis|mongo|user|admin|root|ftp|proxy)[_\-]?pass|pw)(?:[_\-]?\d+)?$|"
    r"^(?:pass|sig|x-amz-signature)$",
    re.IGNORECASE,
)
# Names of secrets and of much else (`sort_key`, `license`): the value decides, by whether it looks drawn at random.
_POSSIBLE_NAME = re.compile(
    r"(?:^|[_\-.])(?:[a-z0-9]*keys?|(?:key|store)pass|pat|webhook|tokens|license|hmac|mnemonic|otp|salt)$",
    re.IGNORECASE,
)
_RANDOM = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_\-+/=.]{8,}")
# Tokens of a vocabulary, which are no secrets, and which every tokenizer's configuration names.
_VOCABULARY = re.compile(
    r"(?:^|[_\-.])(?:pad|eos|bos|unk|sep|cls|mask|image|video|audio|stop|start|end|begin|first|last|next|new|special|"
    r"additional|per|think|tool|user|assistant|system|max|min|num|input|output)(?:ning|ed)?[_\-]?token(?:[_\-]?\d+)?$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_\-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}|"
    r"xox[abp]-[A-Za-z0-9\-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{12,}|AIza[\w\-]{30,}|nvapi-[\w\-]{16,}|wandb_v1_\w{16,}|"
    r"(?:gsk|npm|r8|[sr]k_live|[sr]k_test)_[A-Za-z0-9]{16,}|(?:pypi|xai|pplx)-[\w\-]{16,}|SG\.[\w\-]{16,}\.[\w\-]{16,}|"
    r"ya29\.[\w\-]{16,}|dapi[0-9a-f]{32}|dop_v1_[0-9a-f]{32,}|dckr_pat_[\w\-]{16,}|hvs\.[\w\-]{16,}|tskey-[\w\-]{16,}|"
    r"eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]+|[0-9a-f]{40})\b"
    r"|(?<=://)[^/\s:@]*:[^/\s]+(?=@)"  # user:password@, to the last @ before the path
    r"|(?:(?<=http://)|(?<=https://)|(?<=ftp://))[^/\s@]+(?=@)"  # a token in the user's place
    r"|(?:(?<=hooks\.slack\.com/)|(?<=/api/webhooks/)|(?<=api\.telegram\.org/bot))[^\s\"'?]+"  # whoever has it may post
)
# Commands that take a password without a name for it. Words of a command line are separated by \0 here, or by spaces.
_COMMAND_SECRET = re.compile(
    r"(?P<before>(?:^|(?<=[\s\0/;&|(\"'`]))(?:"
    r"(?:sshpass|7z[ar]?|mysql(?:dump|admin)?|mariadb)[\s\0](?:[^;&|]{0,200}?[\s\0])?-p[\s\0]?|"
    r"zip[\s\0](?:[^;&|]{0,200}?[\s\0])?-P[\s\0]?|docker[\s\0]+login[\s\0](?:[^;&|]{0,200}?[\s\0])?-p[\s\0]?|"
    r"wandb[\s\0]+login[\s\0]+(?:--[^\s\0]+[\s\0]+)*|"
    r"curl[\s\0](?:[^;&|]{0,200}?[\s\0])?(?:-[uU]|--(?:proxy-)?user)[\s\0=]?[^\s\0:]*:|"
    r"(?:curl|wget)[\s\0](?:[^;&|]{0,200}?[\s\0])?(?:-x|--proxy)[\s\0=][^\s\0:/]*:"
    r"))(?!-)(?P<secret>[^\s\0@]+)"
)
# What shell, Python, JSON, a query string or a command line gives a name: `HF_TOKEN=x python`, `login(token='x')`.
_ASSIGNED_NAME = re.compile(r"""(?<![\w.])([A-Za-z_][\w.\-]*)(\\?["']?\]?)\s{0,40}[=:](?:\\?\s){0,40}""")
_QUOTED_NAME = re.compile(r"""(?<=["'])([A-Za-z][A-Za-z ]{1,40})(\\?["'])\s{0,40}:\s{0,40}""")  # {"API key": "x"}
_OPTION_NAME = re.compile(r"(?<!\S)--?([A-Za-z][\w.\-]*)(?:\\?\s){1,40}(?!--[a-z])")
# A list or a table as a whole, or the pieces that a shell puts together to one word: "a"'b'\\ c
_VALUE = re.compile(
    r"""(?:bearer|basic|token)\s+[^\s"']+|\\?[\[{(][^\]})]*[\]})]?|"""
    r"""(?:\\"[^"]*"?|"(?:[^"\\]|\\.)*"?|\$?'[^']*'?|(?:[^\s"',;&|)}\]\\]|\\.|\\)+)+""",
    re.IGNORECASE,
)
_HEADER = re.compile(r"(?:proxy-)?authorization|(?:set-)?cookie", re.IGNORECASE)  # of several words, to its end
_UPTO = {"'": re.compile(r"[^'\n]*"), '"': re.compile(r'(?:[^"\\\n]|\\.)*'), "": re.compile(r"[^\n]*")}
_IS_OPTION = re.compile(r"--[a-z][a-z0-9]*(?:[-_.][a-z0-9]+)*(?:=.*)?", re.DOTALL)


def names_a_secret(name: str) -> bool:
    """Return whether a name is likely that of a password, a key or an access token."""
    return bool(_SECRET_NAME.search(name)) and not _VOCABULARY.search(name)


def is_secret(name: str, value: Any) -> bool:
    """Return whether a value is likely a secret, by its name or, where that may mean anything, by both."""
    if names_a_secret(name):
        return value is not None
    return isinstance(value, str) and bool(_POSSIBLE_NAME.search(name)) and bool(_RANDOM.fullmatch(value))


def _without_passwords(command: str) -> str:
    return _COMMAND_SECRET.sub(lambda found: found["before"] + MASK, command)


def mask(text: str) -> str:
    """Return `text` with everything masked that looks like a secret: known shapes, and values with a telling name."""
    text = _without_passwords(text)
    for pattern in (_ASSIGNED_NAME, _QUOTED_NAME, _OPTION_NAME):
        text = _without_values(pattern, text)
    return _SECRET_VALUE.sub(MASK, text)


def _without_values(pattern: "re.Pattern[str]", text: str) -> str:
    """Return `text` with the values masked whose names `pattern` finds to be those of secrets."""
    out, at = [], 0
    for found in pattern.finditer(text):
        if found.start() < at or not (names_a_secret(found[1]) or _POSSIBLE_NAME.search(found[1])):
            continue
        value = _value_of(found, text).match(text, found.end())
        if value is not None and is_secret(found[1], value[0].strip("\"'\\")):
            out += [text[at : found.end()], MASK]
            at = value.end()
    return "".join([*out, text[at:]])


def _value_of(found: "re.Match[str]", text: str) -> "re.Pattern[str]":
    """Return the pattern of the value after this name. A header ends with its line, or with the quotes around it."""
    if not _HEADER.fullmatch(found[1]) or ":" not in found[0] or found[2]:
        return _VALUE
    before = text[found.start() - 1] if found.start() else ""
    return _UPTO.get(before, _UPTO[""])


def mask_argv(argv: Sequence[str]) -> List[str]:
    """Return a command line without secrets: ``--hf-token X``, ``--password=X``, ``API_KEY=X`` and known key shapes.

    A word after ``--hf-token`` is its value, even with a dash before it, unless it reads like an option.
    """
    out: List[str] = []
    option = ""  # the word before, where this one may be its value
    line = "\0".join([word.replace("\0", " ") for word in argv])
    for word in _without_passwords(line).split("\0") if argv else ():
        name, equals, value = word.partition("=")
        flag = name.lstrip("-")
        if option and is_secret(option, word) and not _IS_OPTION.fullmatch(word):
            out.append(MASK)
        elif equals and is_secret(flag, value) and not re.search(r"\s", name):
            out.append(f"{name}={MASK}")
        else:
            out.append(mask(word))
        option = flag if word.startswith("-") and not equals else ""
    return out


def mask_config(config: Dict[Any, Any], depth: int = 3) -> Dict[str, Any]:
    """Return a configuration as it is sent: plain values, cleaned and cut, secrets masked."""
    out: Dict[str, Any] = {}
    for key, value in list(config.items())[:MAX_CONFIG]:
        name = clean(key, MAX_NAME)
        if isinstance(value, dict) and depth > 0 and _POSSIBLE_NAME.search(name):  # {"tokens": {"hub": "x"}}
            out[name] = {key: MASK if is_secret("key", inner) else inner for key, inner in _plain(value, depth).items()}
        else:
            out[name] = MASK if is_secret(name, value) else _plain(value, depth)
    return out


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if type(value) in (int, float):
        return number(value)
    if isinstance(value, dict) and depth > 0:
        return mask_config(value, depth - 1)
    if isinstance(value, (list, tuple)) and depth > 0:
        if len(value) == 2 and isinstance(value[0], str) and names_a_secret(value[0]):  # a header or an item
            return [clean(value[0], MAX_NAME), MASK]
        if all(isinstance(item, str) for item in value[:50]):  # it may be a command line
            return [clean(word, MAX_TEXT // 16) for word in mask_argv([item[:MAX_TEXT] for item in value[:50]])]
        return [_plain(item, depth - 1) for item in value[:50]]
    try:
        if hasattr(value, "detach"):  # printing a tensor on a device waits for it
            return f"<{type(value).__name__}>"
        return clean(mask(str(value)[:MAX_TEXT]), MAX_TEXT // 16)
    except Exception:  # a foreign __str__ may raise anything
        return f"<{type(value).__name__}>"
