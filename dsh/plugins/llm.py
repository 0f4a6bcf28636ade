"""Row `llm`: the model registry, the HTTP client that adapters share, the grammar of every stream."""

import msgspec

from dsh.capabilities.http import HTTP, HttpClient
from dsh.kernel import Context
from dsh.llm.grammar import check_stream
from dsh.llm.registry import LLM, LLM_STREAM, LlmRegistry

provide = [HTTP, LLM]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


def apply(ctx: Context, config: Config) -> None:
    http = HttpClient()
    ctx.effect(lambda: http.aclose, "http client")
    ctx.provide(HTTP, http)
    LlmRegistry(ctx)
    ctx.on(LLM_STREAM, check_stream, prepend=True, global_=True)
