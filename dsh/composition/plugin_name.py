"""One spelling for the names of plugins, ours and the original's."""

_SCOPE = "@deepseek-ai/"
_PREFIX = "dsh-"


def is_path(name: str) -> bool:
    """Whether a name is a file: relative to the composition file, absolute, or a `file:` URL."""
    return name.startswith((".", "/", "file:"))


def normalise(name: str) -> str:
    """Our spelling: `@deepseek-ai/dsh-tool-bash` and `dsh-tool-bash` are `tool-bash`, `dsh-x/sub` is `x-sub`.

    Paths, built-ins (`cordis:…`) and `package.module:attr` stay as they are.
    """
    if is_path(name) or ":" in name:
        return name
    is_theirs = name.startswith(_SCOPE)
    name = name.removeprefix(_SCOPE)
    if name.startswith(_PREFIX):
        return name.removeprefix(_PREFIX).replace("/", "-")
    return name.replace("/", "-") if is_theirs else name
