"""Row `command-compact`: the command `/compact`, by which a person has a history summarised at once."""

import msgspec

from dsh.capabilities.commands import (
    COMMANDS,
    Command,
    CommandCall,
    CommandFailure,
    CommandOutcome,
    CommandSuccess,
)
from dsh.capabilities.compaction import COMPACTION, CompactionError
from dsh.kernel import Context

inject = [COMMANDS, COMPACTION]
provide = ()


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


def apply(ctx: Context, config: Config) -> None:
    compaction = ctx.use(COMPACTION)

    async def compact(call: CommandCall) -> CommandOutcome:
        if call.raw_input.strip():
            return CommandFailure("/compact takes no arguments.")
        try:
            done = await compaction.compact_now(call.agent, command_id=call.command_id, signal=call.signal)
        except CompactionError as error:
            hint = f" ({error.hint})" if error.hint else ""
            return CommandFailure(f"Nothing was compacted: {error}{hint}. [{error.code}]")
        if done is None:
            return CommandSuccess("There is nothing to compact.")
        return CommandSuccess(
            f"{done.shadowed} messages were compacted: about {done.tokens_before} tokens are now "
            f"about {done.tokens_after}.",
            done.seq,
        )

    description = "Put a summary in place of the conversation so far."
    ctx.use(COMMANDS).register(Command(name="compact", description=description, handler=compact))
