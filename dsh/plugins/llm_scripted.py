"""Row `llm-scripted`: a model that says what a list of replies tells it to, for tests and demonstrations.

The replies stand in a YAML file or in the row itself; the grammar is that of `dsh.llm.script.reply`. It is in
no shipped bundle: a composition that wants it inserts it.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dsh.capabilities.bounds import MAX_TIMER_MS, Amount, NonEmpty
from dsh.kernel import Context
from dsh.llm.registry import LLM
from dsh.llm.retry import RetryConfig
from dsh.llm.script.row import ScriptModel, check_models, script_path
from dsh.llm.script.script_file import given_replies, read_replies
from dsh.llm.script.scripted import DELTA_CHARS, ScriptedAdapter
from dsh.llm.script.service import MODEL_SCRIPT, provide_script

inject = [LLM]
provide = [MODEL_SCRIPT]

PROVIDER = "scripted"
CONTEXT_WINDOW = 128_000


def _default_models() -> list[ScriptModel]:
    return [ScriptModel(id="script", context_window=CONTEXT_WINDOW)]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    file: NonEmpty | None = None
    """A YAML file that is a list of replies; a relative path starts at the working directory."""
    replies: list[Any] | None = None
    """The replies themselves, instead of a file."""
    provider: NonEmpty = PROVIDER
    """The route it serves."""
    models: list[ScriptModel] = msgspec.field(default_factory=_default_models)
    """The models that it lists; any other id is answered as well."""
    repeat_last: bool = False
    """The last reply answers every call after it; else one call too many fails with `SCRIPT_EXHAUSTED`."""
    pace_ms: Annotated[float, Meta(ge=0, le=MAX_TIMER_MS)] = 0
    """How long to wait before each chunk, in milliseconds."""
    delta_chars: Amount = DELTA_CHARS
    """How many characters come in one chunk."""
    retry_policy: RetryConfig = msgspec.field(default_factory=RetryConfig)
    """When a reply that fails is followed by another request, and how long is waited before."""

    def __post_init__(self) -> None:
        if (self.file is None) == (self.replies is None):
            raise ValueError("give either file or replies")
        check_models(self.models)


def apply(ctx: Context, config: Config) -> None:
    """Read the script and serve the route.

    Raises:
        CompositionError: the script is wrong, with file, line and column.
    """
    if config.file is not None:
        replies = read_replies(script_path(config.file))
    else:
        replies = given_replies(config.replies or ())
    adapter = ScriptedAdapter(
        replies,
        [model.info(config.provider) for model in config.models],
        repeat_last=config.repeat_last,
        pace_ms=config.pace_ms,
        delta_chars=config.delta_chars,
        policy=config.retry_policy.policy(),
    )
    ctx.use(LLM).register_adapter([config.provider], adapter)
    provide_script(ctx, adapter)
