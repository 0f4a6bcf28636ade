"""From the `name` of a row to the plugin it means. The only place of the loader that imports plugins."""

import importlib
import importlib.util
import os
import re
import sys
import types
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from zlib import crc32

from dsh.composition.grammar import closest
from dsh.composition.mount.wording import described
from dsh.composition.plugin_name import is_path, normalise
from dsh.errors import CompositionError

BUILT_IN = "dsh.plugins"
ENTRY_POINTS = "dsh.plugins"
"""The entry-point group of third-party plugins."""
_SPELLING = re.compile(r"[a-z0-9][a-z0-9_-]*\Z")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z")


def find_plugin(name: str, folder: Path) -> Any:
    """Import the plugin that a row names.

    `tool-bash` is the built-in module of that spelling, else an entry point of group `dsh.plugins`, else a
    dotted module; `package.module:attr` an attribute; a leading `.` or `/`, or `file:`, a file, relative
    to `folder`, the one of the file the row is written in.

    Raises:
        CompositionError: there is no such plugin, or its code failed; names the file that raised.
    """
    try:
        if is_path(name):
            return exported(_from_file(name, folder), name)
        module, colon, attribute = name.partition(":")
        if colon:
            return _attribute(_module(module), attribute, name)
        return _by_name(name)
    except CompositionError:
        raise
    except BaseException as error:  # whatever somebody's module raises, the program goes on to say so
        raise CompositionError(f"failed to import: {described(error)}") from error


def exported(module: types.ModuleType, name: str) -> Any:
    """The plugin a module is: itself with `apply`, else what it calls `plugin` or `default`.

    Raises:
        CompositionError: it has none, or both kinds (then nobody could tell which is meant).
    """
    named = [key for key in ("plugin", "default") if hasattr(module, key)]
    if hasattr(module, "apply"):
        if named:
            raise CompositionError(
                f"{name} exports both apply and {named[0]}",
                hint=f"keep one of them in {getattr(module, '__file__', name)}",
            )
        return module
    if len(named) == 1:
        return getattr(module, named[0])
    what = "both plugin and default" if named else "no plugin"
    raise CompositionError(f"{name} exports {what}", hint="a plugin module has a function apply(ctx, config)")


def _by_name(name: str) -> Any:
    spelling = normalise(name)
    if _SPELLING.match(spelling):
        target = f"{BUILT_IN}.{spelling.replace('-', '_')}"
        try:
            return exported(importlib.import_module(target), name)
        except ModuleNotFoundError as error:
            if error.name != target:
                raise
    if (found := _entry_point(name, spelling)) is not None:
        return exported(found, name) if isinstance(found, types.ModuleType) else found
    if _DOTTED.match(name) and not _as_file(name):
        return exported(_module(name), name)
    similar = closest(spelling, _built_in_names())
    raise CompositionError(
        f"there is no plugin {name!r}",
        hint=_as_file(name)
        or (f"closest built-in: {', '.join(similar)}" if similar else "install the package that brings it"),
    )


def _as_file(name: str) -> str:
    """The hint for `greet.py`, which is no module but somebody's file."""
    return f"a file beside this one is written ./{name}" if name.endswith(".py") else ""


def _module(name: str) -> types.ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise CompositionError(f"{name!r} is no module name", hint="written: package.module:attribute")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise CompositionError(
            f"there is no module {error.name!r}", hint="install the package that brings it"
        ) from None


def _entry_point(name: str, spelling: str) -> Any:
    from importlib.metadata import entry_points

    group = entry_points(group=ENTRY_POINTS)
    for wanted in (name, spelling):
        for point in group:
            if point.name == wanted:
                return point.load()
    return None


def _built_in_names() -> list[str]:
    package = importlib.import_module(BUILT_IN)
    files = [path for folder in package.__path__ for path in Path(folder).iterdir()]
    return sorted(path.stem.replace("_", "-") for path in files if not path.name.startswith("_"))


def _attribute(module: types.ModuleType, path: str, name: str) -> Any:
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise CompositionError(f"module {module.__name__} has no {path!r}")
        found = getattr(found, part)
    return found


def _from_file(name: str, folder: Path) -> types.ModuleType:
    text = unquote(urlsplit(name).path) if name.startswith("file:") else name
    if not os.path.isfile(folder / text):  # noqa: PTH113 -- false where pathlib raises: too long, zero byte
        raise CompositionError(f"plugin file not found: {os.path.normpath(folder / text)}")
    path = folder.joinpath(text).resolve()
    title = f"_dsh_file_{crc32(str(path).encode()):08x}_{path.stem}"
    if (loaded := sys.modules.get(title)) is not None:
        return loaded
    spec = importlib.util.spec_from_file_location(title, path)
    if spec is None or spec.loader is None:
        raise CompositionError(f"plugin file {path} is not Python: expected a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    module.__name__ = title
    sys.modules[title] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[title]
        raise
    return module
