"""What a composition could serve: routes that can be configured, and models that servers list.

For front ends that help people choose; nothing of it restricts what a request may name (`spec/llm.md` §3).
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from dsh.llm.adapter import ModelInfo
from dsh.llm.failure import LlmError

Discover = Callable[[str], Awaitable[Sequence[ModelInfo]]]
"""The models that the server of a route lists right now. Raises `LlmError` where it lists none."""


class ConfigurableProvider(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A route that can be set up, with the place of the settings where."""

    provider: str
    """The route."""
    display_name: str
    settings_ns: str
    """Section of the settings."""
    settings_path: tuple[str, ...] = ()
    """Keys within it, down to what the route is set up by."""
    declared: bool = True
    """Whether a composition or a person has set it up; false for one that is only offered."""


class DirectoryHandle:
    """A registration of configurable routes. It ends with its owner, or by `dispose`."""

    def __init__(self, directory: "ProviderDirectory") -> None:
        self._directory = directory
        self._disposed = False

    def replace(self, entries: Sequence[ConfigurableProvider]) -> None:
        """List these instead, at once and all or nothing; none is legal.

        Raises:
            LlmError: `DUPLICATE_DIRECTORY`, `INVALID_DIRECTORY`, `REGISTRATION_DISPOSED`.
        """
        if self._disposed:
            raise LlmError.of("REGISTRATION_DISPOSED", "the registration of configurable routes has ended")
        self._directory.put(self, entries)

    def dispose(self) -> None:
        """List nothing any more. A second call changes nothing."""
        if not self._disposed:
            self._directory.put(self, ())
            self._disposed = True


class ProviderDirectory:
    """The configurable routes of one composition, and who can list models. State: both."""

    def __init__(self, updated: Callable[[], None]) -> None:
        self._updated = updated
        self._entries: dict[DirectoryHandle, tuple[ConfigurableProvider, ...]] = {}
        self._discoveries: dict[str, Discover] = {}

    def entries(self) -> tuple[ConfigurableProvider, ...]:
        """Every configurable route, in order of registration."""
        return tuple(entry for entries in self._entries.values() for entry in entries)

    def put(self, handle: DirectoryHandle, entries: Sequence[ConfigurableProvider]) -> None:
        """What a registration lists from now on; used by its handle."""
        others = {
            entry.provider for other, known in self._entries.items() if other is not handle for entry in known
        }
        for entry in entries:
            if not (entry.provider.strip() and entry.display_name.strip() and entry.settings_ns.strip()):
                raise LlmError.of("INVALID_DIRECTORY", f"a configurable route lacks a name: {entry!r}")
            if entry.provider in others:
                raise LlmError.of("DUPLICATE_DIRECTORY", f"route {entry.provider!r} is listed already")
            others.add(entry.provider)
        if tuple(entries) == self._entries.get(handle, ()):
            return
        if entries:
            self._entries[handle] = tuple(entries)
        else:
            self._entries.pop(handle, None)
        self._updated()

    def add_discovery(self, namespace: str, discover: Discover) -> Callable[[], object]:
        """Ask this function for the models of the routes set up in one section; how to end it.

        Raises:
            LlmError: `INVALID_DISCOVERY`, `DUPLICATE_DISCOVERY`.
        """
        if not namespace.strip() or not callable(discover):
            raise LlmError.of("INVALID_DISCOVERY", f"no model discovery for the section {namespace!r}")
        if namespace in self._discoveries:
            raise LlmError.of(
                "DUPLICATE_DISCOVERY", f"another row serves the routes of section {namespace!r} already"
            )
        self._discoveries[namespace] = discover
        return lambda: self._discoveries.pop(namespace)

    async def discover(self, namespace: str, provider: str) -> tuple[ModelInfo, ...]:
        """See `LlmRegistry.discover_models`."""
        discover = self._discoveries.get(namespace)
        if discover is None:
            known = ", ".join(self._discoveries) or "none"
            raise LlmError.of(
                "NO_DISCOVERY", f"no row lists models for the section {namespace!r}; sections: {known}"
            )
        models = await discover(provider)
        if not isinstance(models, list | tuple) or not all(isinstance(info, ModelInfo) for info in models):
            raise LlmError.of("INVALID_DISCOVERY", f"section {namespace!r} lists as models {models!r:.200}")
        found: dict[str, ModelInfo] = {}
        for info in models:
            if info.id.strip():
                found.setdefault(info.id, info)
        return tuple(found.values())
