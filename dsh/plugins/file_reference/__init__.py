"""Row `file-reference`: files that a person names in a prompt by `@path`. In no bundle.

The prompt stays as it was typed; the model is told what such a path is. The service `fileReferences` finds
candidates for front ends that complete one (`spec/capabilities-core.md` §21).
"""

import msgspec

from dsh.agent.prompt import SYSTEM_PROMPT, PromptContext
from dsh.capabilities.bounds import Amount, NonEmpty
from dsh.capabilities.file_references import FILE_REFERENCES
from dsh.kernel import Context
from dsh.plugins.file_reference.search import Search
from dsh.tools.event import TOOLS_RESULT
from dsh.tools.registry import TOOLS

inject = [TOOLS, SYSTEM_PROMPT]
provide = [FILE_REFERENCES]

SECTION_NAME = "file-reference"
SECTION_ORDER = 99
READER = "read"
SECTION = (
    'A path in a prompt that begins with `@`, such as `@src/main.c` or `@"a name with blanks"`, is a file or '
    "directory that the person refers to, relative to the working directory. Only its name is given: read it "
    "before you say or do anything that depends on what is in it."
)


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row; all are of the search for candidates."""

    max_results: Amount = 20
    """How many candidates are offered."""
    max_entries: Amount = 10_000
    """How many files and directories below the working directory are looked at."""
    excluded_directories: list[NonEmpty] = msgspec.field(default_factory=lambda: [".git", "node_modules"])
    """Names of directories whose content is not offered."""


def apply(ctx: Context, config: Config) -> None:
    search = Search(config.max_results, config.max_entries, frozenset(config.excluded_directories))
    ctx.provide(FILE_REFERENCES, search)
    ctx.on(TOOLS_RESULT, lambda _: search.forget())
    tools = ctx.use(TOOLS)

    def section(context: PromptContext) -> str | None:
        return SECTION if tools.get(READER, context.agent) is not None else None

    ctx.use(SYSTEM_PROMPT).section(SECTION_NAME, SECTION_ORDER, section)
