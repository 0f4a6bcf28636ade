"""Row `tools`: the registry of tools and the pipeline that runs their calls."""

from typing import Literal

import msgspec

from dsh.capabilities.bounds import Amount
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.tools.registry import TOOLS, ToolRegistry

provide = [TOOLS]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    mode: Literal["native", "code", "both"] = "native"
    """How tools are presented to the model: `native` as tools. The others need a code runtime."""
    max_parallel_sub_calls: Amount = 10
    """Calls that one program of a code mode may have open at once."""


def apply(ctx: Context, config: Config) -> None:
    if config.mode != "native":
        raise CompositionError(
            f"mode {config.mode!r} needs a code runtime, and none is shipped",
            hint="set mode to native, or unset DSH_TOOLS_MODE",
        )
    ToolRegistry(ctx)
