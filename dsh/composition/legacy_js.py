"""For the shapes that the original's shipped files hold: the `!expr` to write instead of a `!!js`."""

import re

_ENV = r"(?:process\.env|ctx\.env|env)\.(?P<name>[A-Z_][A-Z0-9_]*)"
_TEXT = r"(?P<text>'[^'\\]*'|\"[^\"\\]*\")"
_SHAPES: list[tuple[str, str]] = [
    (r"(?:ctx\.)?dshHomePath\((?P<args>(?:'[^'\\]*'(?:, *'[^'\\]*')*)?)\)", "home({args})"),
    (_ENV + r" *\?\? *" + _TEXT, "get(env, '{name}', {text})"),
    (_ENV + r" *\|\| *" + _TEXT, "get(env, '{name}') or {text}"),
    (_ENV, "get(env, '{name}')"),
    (r"process\.cwd\(\)", "cwd"),
    (r"process\.platform *(?P<op>[=!])== *" + _TEXT, "platform {op}= {text}"),
    (r"process\.execPath", "python"),
    (
        r"(?:ctx\.)?(?P<service>[a-z]\w*)\.(?P<field>[a-z]\w*) *\?\? *(?P<rest>\d+)",
        "get(svc.{service}, '{field}', {rest})",
    ),
    (r"(?:ctx\.)?(?P<service>[a-z]\w*)\.(?P<field>[a-z]\w*)", "svc.{service}.{field}"),
]


def expression_for(text: str) -> str | None:
    """The same value in our language, or None for a shape that is not known."""
    for shape, ours in _SHAPES:
        if found := re.fullmatch(shape, text.strip()):
            return ours.format(**found.groupdict())
    return None
