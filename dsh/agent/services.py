"""What a loop works with: the services of its row, and the settings that may change while it runs."""

from collections.abc import Callable

import msgspec

from dsh.agent.initiator import Initiators
from dsh.agent.limits import TurnRules
from dsh.agent.prompt import SystemPrompt
from dsh.kernel import Context
from dsh.llm.registry import LlmRegistry
from dsh.tools.registry import ToolRegistry


class LoopServices(msgspec.Struct, frozen=True, eq=False):
    """Given to every agent by the loop's row."""

    ctx: Context
    """The row's own context."""
    llm: LlmRegistry
    tools: ToolRegistry
    prompt: SystemPrompt
    initiators: Initiators
    """Drivers run on behalf of their agents."""
    max_parallel_tool_calls: Callable[[], int]
    """Read when the calls of a message begin."""
    rules: Callable[[], TurnRules] = TurnRules
    """Read when a turn begins, and when one has failed."""
    keeps_refused_text: Callable[[], bool] = lambda: False
    """Read when the model has broken off a reply: whether what can be read of it becomes a message."""
