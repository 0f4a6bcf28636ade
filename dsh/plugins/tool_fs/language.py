"""The language of a file by the ending of its name, for display."""

import os

_SAME = "ts tsx js jsx json py rb go rs java c cs php toml ini css scss less sql xml lua swift"
_OTHERS = {
    "ts": "mts cts",
    "js": "mjs cjs",
    "json": "jsonc",
    "c": "h",
    "cpp": "cc cpp hpp cxx",
    "kotlin": "kt",
    "sh": "sh bash zsh",
    "yaml": "yaml yml",
    "md": "md markdown mdx",
    "html": "htm html",
}
LANGUAGES = {name: name for name in _SAME.split()} | {
    ending: language for language, endings in _OTHERS.items() for ending in endings.split()
}


def language_of(path: str) -> str | None:
    """The language, or None for an unknown ending and a name whose only dot is its first character."""
    return LANGUAGES.get(os.path.splitext(path)[1][1:].lower())
