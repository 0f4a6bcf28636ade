"""Row `llm-replay`: a recorded session is the model. Every call gets what it got when it was recorded.

With `providers` it serves those routes as their adapter; without, it answers every call of every route, in
front of whatever adapter there is. More calls or sessions than were recorded fail by name; the service
`modelScript` tells whether there were fewer. In no shipped bundle.
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from dsh.capabilities.bounds import MAX_TIMER_MS, NonEmpty
from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.llm.registry import LLM, LLM_STREAM, contained_stream
from dsh.llm.request import LlmRequest
from dsh.llm.script.error import ScriptError
from dsh.llm.script.override import read_override
from dsh.llm.script.player import ScriptAdapter
from dsh.llm.script.recording import Recording, read_recording, scripts_of
from dsh.llm.script.row import ScriptModel, check_models, script_path
from dsh.llm.script.service import MODEL_SCRIPT, provide_script
from dsh.session.chunk import Chunk

inject = [LLM]
provide = [MODEL_SCRIPT]

FILE, OVERRIDE, CHILDREN = "DSH_SNAPSHOT_FILE", "DSH_SNAPSHOT_OVERRIDE", "DSH_SNAPSHOT_CHILD_FILES"


class Provider(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A route that the recording serves."""

    display_name: NonEmpty | None = None
    """What people read; unset: the route's id."""
    models: list[ScriptModel] = msgspec.field(default_factory=list)
    """Its models; those that were recorded on it are known without."""

    def __post_init__(self) -> None:
        check_models(self.models)


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row. Relative paths start at the working directory."""

    file: NonEmpty | None = None
    """The recorded session, plain or zstd; unset: the variable `DSH_SNAPSHOT_FILE`."""
    override_file: NonEmpty | None = None
    """JSON that replaces calls of it; one that does not exist changes nothing. Unset: the variable
    `DSH_SNAPSHOT_OVERRIDE`."""
    child_files: list[NonEmpty] | None = None
    """The recorded sessions of its children; unset: the variable `DSH_SNAPSHOT_CHILD_FILES`, with the
    separator of `PATH` between them."""
    providers: dict[NonEmpty, Provider] = msgspec.field(default_factory=dict)
    """The routes to serve; none: every call of every route is answered, also where it has no adapter."""
    pace_ms: Annotated[float, Meta(ge=0, le=MAX_TIMER_MS)] = 0
    """How long to wait before each chunk, in milliseconds."""


def apply(ctx: Context, config: Config) -> None:
    """Read the recording and answer with it.

    Raises:
        CompositionError: no file is named, or a recording or the override is not what it must be.
    """
    try:
        recordings = _recordings(ctx, config)
        scripts = scripts_of(recordings[0], recordings[1:])
    except ScriptError as error:
        raise CompositionError(str(error), code=error.code, hint=error.hint) from None
    stated = [model.info(route) for route, given in config.providers.items() for model in given.models]
    adapter = ScriptAdapter(
        scripts,
        [*stated, *(model for recording in recordings for model in recording.models)],
        pace_ms=config.pace_ms,
        policies={name: policy for one in reversed(recordings) for name, policy in one.policies.items()},
        names={route: given.display_name or route for route, given in config.providers.items()},
    )

    def answer(request: LlmRequest, following: Callable[[], AsyncIterator[Chunk]]) -> AsyncIterator[Chunk]:
        return contained_stream(request, adapter.stream)

    if config.providers:
        ctx.use(LLM).register_adapter(list(config.providers), adapter)
    else:
        ctx.on(LLM_STREAM, answer, global_=True)
    provide_script(ctx, scripts)


def _recordings(ctx: Context, config: Config) -> list[Recording]:
    environment = ctx.get(LAUNCH_ENVIRONMENT)

    def variable(name: str) -> str:
        found = None if environment is None else environment.get(name)
        return "" if found is None else found.value

    file = config.file or variable(FILE)
    if not file:
        raise CompositionError("llm-replay has no recording", hint=f"set file in the row, or {FILE}")
    children: Sequence[str] = config.child_files or ()
    if config.child_files is None:
        children = [path for path in variable(CHILDREN).split(os.pathsep) if path]
    parent = read_recording(script_path(file))
    others = [read_recording(script_path(path), is_child=True) for path in children]
    if override := config.override_file or variable(OVERRIDE):
        calls = tuple(read_override(script_path(override), parent.calls))
        parent = msgspec.structs.replace(parent, calls=calls)
    return [parent, *others]
