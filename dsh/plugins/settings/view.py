"""A section as one of its owners sees it: over that row's config, by its schema, told to its watchers."""

import asyncio
import copy
import logging
import re
import types
from collections import deque
from collections.abc import Callable
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from dsh.capabilities.settings import Applies, SettingsSectionError
from dsh.capabilities.user_document import plain
from dsh.composition.value import type_name
from dsh.errors import DshError
from dsh.kernel import Effect, ValidationError, resolve_config
from dsh.kernel.foreign import contained
from dsh.plugins.settings.document import Document
from dsh.plugins.settings.merge import layered, same

S = TypeVar("S", bound=msgspec.Struct)
Watcher = Callable[[Any, Any], Any]

DRAIN_S = 5.0
"""How long the end of a view waits for a watcher that is being told."""


class View(Generic[S]):
    """State: what counts for the owner, its watchers and what waits for them."""

    def __init__(
        self,
        namespace: str,
        schema: type[S],
        *,
        owner: str,
        base: Any,
        applies: Applies,
        validate: Callable[[S], None] | None,
        is_shared: bool,
        logger: logging.Logger,
    ) -> None:
        """`owner` says in words whose it is."""
        self.namespace = namespace
        self.schema = schema
        self.owner = owner
        self.applies = applies
        self.base: dict[str, Any] = plain(msgspec.to_builtins(base)) if base is not None else {}
        self.is_shared = is_shared
        self.is_closed = False
        self._validate = validate
        self._logger = logger
        self._value: S
        self._is_immutable = _is_immutable(schema)
        self._watchers: dict[Effect, Watcher] = {}
        self._waiting: deque[tuple[Effect, S, S]] = deque()
        self._telling: asyncio.Task[None] | None = None

    @property
    def value(self) -> S:
        """What counts now, the caller's to keep."""
        return self._value if self._is_immutable else copy.deepcopy(self._value)

    def open(self, raw: Any, document: Document) -> None:
        """Begin with what is written now.

        Raises:
            SettingsSectionError: it is not accepted.
        """
        self._value = self.resolve(raw, document)

    def resolve(self, raw: Any, document: Document | None = None) -> S:
        """What would count with this section.

        Args:
            document: where the section is written, for the place in an error.

        Raises:
            SettingsSectionError: schema or owner do not accept it.
        """
        if raw is not None and not isinstance(raw, dict):
            raise self._error(f"a section must be a mapping, not {type_name(raw)}", document)
        try:
            value = resolve_config(self.schema, layered(self.base, raw or {}))
            if self._validate is not None:
                self._validate(value)
        except ValidationError as error:
            path = tuple(filter(None, error.path.split(".")))
            raise self._error(error.problem, document, path, key=error.unknown, hint=error.hint) from None
        except ValueError as error:
            raise self._error(str(error), document) from None
        except DshError as error:
            raise self._error(error.message, document, hint=error.hint) from None
        except BaseException as raised:
            failure = contained(raised, "the judge of this section")
            raise self._error(
                f"{self.owner} failed to judge it: {type(failure).__name__}", document
            ) from failure
        return value

    def _error(
        self,
        problem: str,
        document: Document | None,
        path: tuple[str, ...] = (),
        *,
        key: str = "",
        hint: str = "",
    ) -> SettingsSectionError:
        mark = None
        if document is not None:
            named = path or (() if key else self._named(problem, document))
            mark = document.mark(self.namespace, *named, key=key)
            if not named and not key:
                mark = document.key_mark(self.namespace)
        return SettingsSectionError(self.namespace, problem, path=path, mark=mark, hint=hint)

    def _named(self, problem: str, document: Document) -> tuple[str, ...]:
        """The first key of the section that a problem without a path speaks of."""
        written = document.section(self.namespace)
        words = re.findall(r"\w+", problem)
        return tuple([key for key in words if isinstance(written, dict) and key in written][:1])

    def take(self, value: S) -> S | None:
        """Let a value count; answers the one before, None where nothing has changed."""
        before, self._value = self._value, value
        return None if same(msgspec.to_builtins(before), msgspec.to_builtins(value)) else before

    # -- watchers --------------------------------------------------------------------------------

    def add(self, effect: Effect, watcher: Watcher) -> None:
        self._watchers[effect] = watcher

    def drop(self, effect: Effect) -> None:
        self._watchers.pop(effect, None)

    def tell(self, before: S, start: Callable[[Any, str], "asyncio.Task[None]"]) -> None:
        """Queue a change for every watcher; `start` makes a task that outlives this call."""
        now = self.value
        self._waiting.extend((effect, now, before) for effect in self._watchers)
        if self._waiting and self._telling is None:
            self._telling = start(self._deliver(), f"watchers of settings {self.namespace}")

    async def _deliver(self) -> None:
        try:
            while self._waiting and not self.is_closed:
                effect, now, before = self._waiting.popleft()
                if (watcher := self._watchers.get(effect)) is None:
                    continue
                try:
                    answer = watcher(now, before)
                    if hasattr(answer, "__await__"):
                        await answer
                except BaseException as raised:
                    error = contained(raised, f"a watcher of settings {self.namespace}")
                    self._logger.error(
                        "watcher of settings %s failed: %s", self.namespace, error, exc_info=error
                    )
        finally:
            self._telling = None

    async def close(self) -> None:
        """Tell nobody any more, and wait for whoever is being told."""
        self.is_closed = True
        self._waiting.clear()
        telling = self._telling
        if telling is not None and telling is not asyncio.current_task():
            await asyncio.wait((telling,), timeout=DRAIN_S)


def _is_immutable(kind: Any) -> bool:
    """Whether a value of this type cannot be changed at any depth."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _is_immutable(get_args(kind)[0])
    if origin is Literal:
        return True
    if origin in (Union, types.UnionType) or origin in (tuple, frozenset):
        return all(_is_immutable(one) for one in get_args(kind) if one is not ...)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind, include_extras=True)
        return kind.__struct_config__.frozen and all(
            _is_immutable(hints[field.name]) for field in msgspec.structs.fields(kind)
        )
    return kind in (str, int, float, bool, bytes, type(None))
