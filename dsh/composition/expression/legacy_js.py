"""For a `!!js` of the original's files: the `!expr` that means the same, where its shape is a known one.

Only a hint is made of it: nothing is ever run, and what is not surely understood is not translated.
"""

import re
from collections.abc import Iterator

from dsh.composition.expression.language import ExpressionError, check
from dsh.composition.value import Expr, Mark, quoted

MAX_TEXT = 500
"""Longer ones are programs, not one of the shapes that files hold."""
_ENVIRONMENT = re.compile(r"(?:process\.env|(?:ctx\.)?env)(?:\.([A-Za-z_]\w*)|\[(?:'(\w+)'|\"(\w+)\")\])")
_FIELD = re.compile(r"(?:ctx\.)?([a-z]\w*)\.([a-z]\w*)")
_STRING = re.compile(r"'[^'\\]*'|\"[^\"\\]*\"")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_HOME = re.compile(r"(?:ctx\.)?dshHomePath\((.*)\)")
_WORDS = {
    "process.cwd()": "cwd", "process.platform": "platform", "process.execPath": "python", "true": "True",
    "false": "False", "null": "None", "undefined": "None",
}  # fmt: skip
_OURS = frozenset(["process", "ctx", "env", "console", "globalThis", "require"])
"""Names of the other language that are no services."""
_OPEN, _CLOSE = "([{", ")]}"


_PLAIN = re.compile(r"[A-Za-z0-9(][A-Za-z0-9_.()' =!<>+-]*")


class _Unknown(Exception):
    """The text has no shape that is known."""


def expression_for(text: str) -> str | None:
    """The same value in our language, or None for a shape that is not known."""
    if len(text) > MAX_TEXT:
        return None
    try:
        ours = _translated(text)
        check(Expr(ours, Mark("", 1, 1)))
    except (_Unknown, ExpressionError, RecursionError):
        return None
    return ours


def as_scalar(expression: str) -> str:
    """The expression as it is written behind `!expr`, inside of brackets too."""
    return expression if _PLAIN.fullmatch(expression) else quoted(expression)


def _translated(text: str) -> str:
    text = text.strip()
    if text.startswith("(") and _end_of(text, 0) == len(text) - 1:
        return f"({_translated(text[1:-1])})"
    if parts := _split(text, "?", ":"):
        condition, yes, no = parts
        return f"{_translated(yes)} if {_translated(condition)} else {_translated(no)}"
    if parts := _split(text, "||"):
        return f"{_translated(parts[0])} or {_translated(parts[1])}"
    if parts := _split(text, "&&"):
        return f"{_translated(parts[0])} and {_translated(parts[1])}"
    if parts := _split(text, "??"):
        return _with_default(parts[0].strip(), _translated(parts[1]))
    for theirs, ours, presence in (("===", "==", "not in"), ("!==", "!=", "in")):
        if parts := _split(text, theirs):
            if parts[1].strip() == "undefined" and (name := _variable(parts[0].strip())):
                return f"'{name}' {presence} env"
            if _split(parts[1], "===") or _split(parts[1], "!=="):  # which Python reads as a chain
                raise _Unknown
            return f"{_translated(parts[0])} {ours} {_translated(parts[1])}"
    return _atom(text)


def _with_default(text: str, default: str) -> str:
    if name := _variable(text):
        return f"get(env, '{name}', {default})"
    if (found := _FIELD.fullmatch(text)) and found[1] not in _OURS:
        return f"get(svc.{found[1]}, '{found[2]}', {default})"
    raise _Unknown


def _variable(text: str) -> str | None:
    found = _ENVIRONMENT.fullmatch(text)
    return found[1] or found[2] or found[3] if found else None


def _atom(text: str) -> str:
    if text in _WORDS:
        return _WORDS[text]
    if _STRING.fullmatch(text) or _NUMBER.fullmatch(text):
        return text
    if name := _variable(text):
        return f"get(env, '{name}')"
    if found := _HOME.fullmatch(text):
        return f"home({', '.join(map(_translated, _items(found[1])))})"
    if (found := _FIELD.fullmatch(text)) and found[1] not in _OURS:
        return f"svc.{found[1]}.{found[2]}"
    if text.startswith("[") and text.endswith("]"):
        return f"[{', '.join(map(_item, _items(text[1:-1])))}]"
    if text.startswith("`") and text.endswith("`") and len(text) > 1:
        return " + ".join(_pieces(text[1:-1]))
    raise _Unknown


def _item(text: str) -> str:
    text = text.strip()
    return f"*{_translated(text[3:])}" if text.startswith("...") else _translated(text)


def _pieces(template: str) -> Iterator[str]:
    """The parts of a template; a variable is needed in it, so that one which is not set is an error."""
    if "\\" in template or "`" in template or "'" in template:
        raise _Unknown
    for n, part in enumerate(re.split(r"\$\{([^{}]*)\}", template)):
        if n % 2:
            name = _variable(part.strip())
            yield f"env.{name}" if name else f"({_translated(part)})"
        elif part or not template:
            yield f"'{part}'"


def _items(text: str) -> list[str]:
    items = []
    while parts := _split(text, ","):
        items.append(parts[0])
        text = parts[1]
    return [*items, text] if text.strip() else items


def _split(text: str, first: str, second: str = "") -> tuple[str, ...] | None:
    """The text cut at the first operator outside of brackets and quotes, and at the last second one."""
    places = [at for at in _outside(text) if text.startswith(first, at) and _is_whole(text, at, first)]
    if not places:
        return None
    at = places[0]
    before, after = text[:at], text[at + len(first) :]
    if not second:
        return before, after
    ends = [end for end in _outside(after) if after.startswith(second, end)]
    return (before, after[: ends[-1]], after[ends[-1] + 1 :]) if ends else None


def _is_whole(text: str, at: int, operator: str) -> bool:
    """Whether an operator stands there and not a part of a longer one: `?` of `??`."""
    return operator != "?" or "??" not in text[max(at - 1, 0) : at + 2]


def _outside(text: str) -> Iterator[int]:
    at = 0
    while at < len(text):
        if text[at] in "'\"`" or text[at] in _OPEN:
            at = _end_of(text, at)
        else:
            yield at
        at += 1


def _end_of(text: str, start: int) -> int:
    """Where what starts there ends: a quoted text, or what is in brackets."""
    mark = text[start]
    if mark in "'\"`":
        end = text.find(mark, start + 1)
        if end < 0 or "\\" in text[start:end]:
            raise _Unknown
        return end
    at = start + 1
    while at < len(text):
        if text[at] in _CLOSE:
            return at
        if text[at] in "'\"`" or text[at] in _OPEN:
            at = _end_of(text, at)
        at += 1
    raise _Unknown
