"""JSON values as the log holds them: validated once, deeply immutable, encoded without loss.

A value enters through `freeze`, which reads it once and builds the detached copy in the same pass.
What comes out is scalars, tuples and `FrozenDict`; giving such a value to `freeze` again costs nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, TypeAlias

import msgspec

from dsh.session.error import JsonError, TooDeep
from dsh.unicode import valid

JsonValue: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, list or tuple of such, mapping from str to such."""
JsonObject: TypeAlias = Mapping[str, Any]
"""A JSON object; its values are JSON values."""

MAX_SAFE_INT = 2**53 - 1
"""The largest integer that every reader of the format keeps exact."""
MAX_DEPTH = 512
"""Levels of nesting that a value of the log may have."""


class FrozenDict(dict[str, Any]):
    """A JSON object that belongs to the log: a dict without mutators. Only `freeze` makes one."""

    __slots__ = ("height",)
    height: int
    """Levels of nesting below and including this object."""

    def __init__(self, *_: object, **__: object) -> None:
        raise TypeError("a FrozenDict is made by dsh.session.value.freeze")

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a value of the session log cannot be changed; build a new one")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> "FrozenDict":
        return self

    def __deepcopy__(self, _: object) -> "FrozenDict":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (freeze, (dict(self), "pickle"))


class _Frame:
    """One container that is being copied."""

    __slots__ = ("height", "items", "key", "out", "source")

    def __init__(self, source: Any) -> None:
        self.source = source
        self.height = 1
        self.key: Any = None
        self.out: Any
        self.items: Iterator[tuple[Any, Any]]
        if isinstance(source, dict):
            self.out, self.items = {}, iter(source.items())
        else:
            self.out, self.items = [], enumerate(source)

    def put(self, value: Any) -> None:
        if type(self.out) is dict:
            self.out[self.key] = value
        else:
            self.out.append(value)

    def finish(self) -> Any:
        if type(self.out) is not dict:
            return tuple(self.out)
        return _own(self.out, self.height)


def _own(items: dict[str, Any], height: int) -> FrozenDict:
    made: FrozenDict = dict.__new__(FrozenDict)
    dict.update(made, items)
    made.height = height
    return made


EMPTY = _own({}, 1)
"""The empty object."""


def freeze(value: JsonValue, where: str, *, stored: bool = False) -> Any:
    """The deeply immutable copy of a JSON value.

    Accepts exactly None, bool, int, float, str, list and dict, and what the log already owns (tuples and
    `FrozenDict`; the latter is shared, not copied). Integral floats become integers.

    Args:
        where: how an error names the value.
        stored: the value was read from a log; integers beyond the safe range and negative zero are kept.

    Raises:
        JsonError: the value is not lossless JSON; the message holds the path inside it.

    Source: `spec/session-log.md` §1.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None or kind is FrozenDict:
        return value
    root = _Frame([value])
    stack = [root]
    open_ids: set[int] = set()
    while True:
        frame = stack[-1]
        for key, item in frame.items:
            frame.key = key
            if frame.out.__class__ is dict and type(key) is not str:
                _fail(where, stack, f"a key of type {type(key).__name__}", "string keys")
            kind = type(item)
            if kind is str or kind is bool or item is None:
                frame.put(item)
            elif kind is int or kind is float:
                frame.put(_number(item, where, stack, stored))
            elif kind is FrozenDict:
                if len(stack) - 1 + item.height > MAX_DEPTH:
                    _fail(where, stack, f"more than {MAX_DEPTH} levels of nesting", f"at most {MAX_DEPTH}")
                frame.height = max(frame.height, item.height + 1)
                frame.put(item)
            elif kind is dict or kind is list or kind is tuple:
                if id(item) in open_ids:
                    _fail(where, stack, "a cycle", "a tree")
                if len(stack) > MAX_DEPTH:
                    _fail(where, stack, f"more than {MAX_DEPTH} levels of nesting", f"at most {MAX_DEPTH}")
                open_ids.add(id(item))
                stack.append(_Frame(item))
                break
            else:
                _fail(where, stack, f"a value of type {kind.__name__}", "plain JSON")
        else:
            stack.pop()
            if frame is root:
                return frame.out[0]
            open_ids.discard(id(frame.source))
            parent = stack[-1]
            parent.height = max(parent.height, frame.height + 1)
            parent.put(frame.finish())


def _number(item: float, where: str, stack: list[_Frame], stored: bool) -> float:
    if type(item) is int:
        if stored or -MAX_SAFE_INT <= item <= MAX_SAFE_INT:
            return item
        _fail(where, stack, "an integer beyond 2^53-1", "a safe integer")
    if item - item != 0:  # NaN or infinite
        _fail(where, stack, f"the number {item}", "a finite number")
    if item.is_integer() and -MAX_SAFE_INT <= item <= MAX_SAFE_INT:
        if item == 0 and not stored and str(item).startswith("-"):
            _fail(where, stack, "negative zero", "zero without a sign")
        return int(item)
    return item


def _fail(where: str, stack: list[_Frame], found: str, expected: str) -> NoReturn:
    path = "".join(f"[{f.key}]" if type(f.out) is not dict else f".{f.key}" for f in stack[1:])
    raise JsonError(f"{where}{path[:200]}: found {found}, expected {expected}")


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_SURROGATE = re.compile("[\ud800-\udfff]")
_MALFORMED = "JSON is malformed: "
"""How the decoder begins the message that ours says in other words."""
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def encode(value: object) -> bytes:
    """Compact JSON in UTF-8; key order is kept, a lone surrogate becomes its lower-case escape.

    The value must be one that `freeze` accepts, or a msgspec struct of such.
    """
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, str_keys=True)
        text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return _SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", text).encode()


def decode_strict(data: bytes | str) -> JsonValue:
    """The value of one JSON text. Duplicate keys: the last one counts; lone surrogate escapes are kept.

    Raises:
        JsonError: NaN, Infinity, a byte-order mark, another encoding than UTF-8, a number out of range, or
            plainly no JSON.
        TooDeep: nesting that the reader cannot follow.
    """
    try:
        return _decoder.decode(data)
    except RecursionError:
        raise TooDeep(f"JSON is nested more than {MAX_DEPTH} levels deep") from None
    except msgspec.DecodeError as error:
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        if not _SURROGATE_ESCAPE.search(raw):
            raise JsonError(f"not JSON: {str(error).removeprefix(_MALFORMED)}") from None
        return _decode_with_surrogates(raw)


def is_shallow(text: bytes) -> bool:
    """Whether a JSON text has so few brackets that its value cannot be nested too deeply."""
    return text.count(b"{") + text.count(b"[") <= MAX_DEPTH


def _decode_with_surrogates(data: bytes) -> JsonValue:
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise TooDeep(f"JSON is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        raise JsonError(f"not JSON: {error}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"{text[:20]} is out of range")
    return number


def safe_int(value: object) -> int | None:
    """The integer behind a stored number, None for anything that is not a safe integer.

    `1.0` is 1; True is not a number; negative zero is refused.
    """
    if type(value) is int:
        return value if -MAX_SAFE_INT <= value <= MAX_SAFE_INT else None
    if type(value) is float and value.is_integer() and abs(value) <= MAX_SAFE_INT:
        return None if value == 0 and str(value).startswith("-") else int(value)
    return None


def is_number(value: object) -> bool:
    """True for int and float, false for bool."""
    return type(value) is int or type(value) is float


def json_equal(left: JsonValue, right: JsonValue) -> bool:
    """Structural equality of two JSON values: key order is free, 1 is 1.0, True is not 1."""
    pairs = [(left, right)]
    while pairs:
        a, b = pairs.pop()
        if a is b:
            continue
        if isinstance(a, Mapping):
            if not isinstance(b, Mapping) or len(a) != len(b):
                return False
            for key, item in a.items():
                if key not in b:
                    return False
                pairs.append((item, b[key]))
        elif isinstance(a, list | tuple):
            if not isinstance(b, list | tuple) or len(a) != len(b):
                return False
            pairs.extend(zip(a, b, strict=True))
        elif isinstance(b, Mapping | list | tuple) or (type(a) is bool) != (type(b) is bool) or a != b:
            return False
    return True


def clean(value: JsonValue) -> JsonValue:
    """A frozen value whose strings are all valid Unicode; the same object where they are already."""
    try:
        _encoder.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return freeze(json.loads(valid(text)), "cleaned value", stored=True)
    return value
