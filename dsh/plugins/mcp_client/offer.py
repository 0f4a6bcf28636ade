"""What one server offers the model: keeps its tools registered while they are the same."""

from collections.abc import Callable, Sequence

from dsh.errors import DshError
from dsh.kernel import Context, Effect
from dsh.plugins.mcp_client.listed import Listed
from dsh.plugins.mcp_client.names import owner_of, public_name
from dsh.plugins.mcp_client.tool import Call, definition
from dsh.tools.registry import TOOLS


class Offer:
    """The registered tools of one server. State: each with what it looked like."""

    def __init__(self, ctx: Context, server: str, call: Call, warn: Callable[[str], None]) -> None:
        self._ctx, self._server, self._call, self._warn = ctx, server, call, warn
        self._held: dict[str, tuple[bytes, Effect]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def update(self, tools: Sequence[Listed]) -> None:
        """Register what is new, take back what is gone; what has not changed is not touched.

        A tool whose public name somebody else has is left out, and told.
        """
        wanted = {public_name(self._server, tool.name): tool for tool in tools}
        for name in [name for name in self._held if name not in wanted]:
            self._drop(name)
        for name, tool in wanted.items():
            held = self._held.get(name)
            if held is not None and held[0] == tool.print:
                continue
            if held is not None:
                self._drop(name)
            self._add(name, tool)

    def withdraw(self) -> None:
        """Take all back."""
        for name in list(self._held):
            self._drop(name)

    def _add(self, name: str, tool: Listed) -> None:
        owner = owner_of(self._ctx, name)
        if owner is not None and owner != self._server:
            self._warn(f"its tool {tool.name!r} is left out: the name {name} belongs to server {owner!r}")
            return
        try:
            made = definition(name, self._server, tool, self._call)
            self._held[name] = (tool.print, self._ctx.use(TOOLS).register(made))
        except DshError as error:
            self._warn(f"its tool {tool.name!r} is left out: {error.message}")

    def _drop(self, name: str) -> None:
        _, effect = self._held.pop(name)
        effect()
