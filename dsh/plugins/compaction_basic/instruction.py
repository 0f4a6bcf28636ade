"""What a model is asked for when it writes a summary, and how the summary stands in the history."""

from collections.abc import Mapping, Sequence
from typing import Any

from dsh.plugins.compaction_basic.span import CHECKPOINT_PLUGIN
from dsh.session.message import Message, text_block, user_message

OWNER = "dsh-compaction-basic"
"""The plugin that the source of the instruction names."""

INSTRUCTION = """\
The conversation above is about to be replaced by what you write now, and whoever goes on with the work \
will see nothing else of it. Write down everything that is needed to go on without asking again or doing \
work twice.

Answer with text only and call no tool. Write about the work, not about this request or about summarising. \
Use the facts as they stand above: exact paths, names, numbers, commands, error texts. Invent nothing; what \
is not known, say so. If the conversation begins with the record of earlier work, merge it into yours: keep \
what still holds, bring the rest up to date, and do not copy or quote it as a whole.

Use these Markdown sections, in this order. Leave a section out only if there is nothing for it.

## Goal
What the user wants, with all requirements and corrections, in the user's own words where they matter.
## Concepts
Technologies, conventions and decisions that the work follows, with the reasons that were given.
## Files and code
Each file that was read, made or changed: its path, what matters in it, what was done to it. Quote code that \
will be needed again.
## Errors and fixes
What went wrong, why, what mended it, and what was tried in vain.
## Pending work
What was asked for and is not done yet.
## Current work
What was being done last, precisely, with its state.
## Next step
The one thing to do next, if the user's wishes call for one.
## Critical context
Anything else without which the work could go wrong: identifiers, ports, running processes, limits, promises.
"""

PREAMBLE = """\
What follows is a record of the earlier part of this conversation, made to save room. Take it as known and \
go on with the work from the messages after it, without speaking of the record.

<compacted-summary>
"""
END = "\n</compacted-summary>"


def instruction() -> Message:
    """The last message of a request for a summary."""
    return user_message(INSTRUCTION, {"kind": "plugin", "plugin": OWNER})


def checkpoint(summary: Sequence[Mapping[str, Any]], bracket: Mapping[str, Any]) -> Message:
    """The message that takes the place of the history.

    Args:
        summary: text blocks.
        bracket: `compactionId`, and `sourceCommandId` where a command asked for it.
    """
    source = {"kind": "plugin", "plugin": CHECKPOINT_PLUGIN, **bracket}
    return user_message([text_block(PREAMBLE), *summary, text_block(END)], source)
