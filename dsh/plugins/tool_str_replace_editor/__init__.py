"""Row `tool-str-replace-editor`: one tool that views, creates and changes files by commands.

Some models were trained on it. It stands on the same service, guards and observations as `read`, `write` and
`edit`, and asks for no wider sandbox (`spec/capabilities-core.md` §7).
"""

from dsh.capabilities.fs import FS
from dsh.kernel import Context
from dsh.plugins.tool_str_replace_editor.config import Config
from dsh.plugins.tool_str_replace_editor.tool import editor_tool
from dsh.tools.registry import TOOLS

__all__ = ["Config", "apply", "inject", "provide"]

inject = [FS, TOOLS]
provide = ()


def apply(ctx: Context, config: Config) -> None:
    ctx.use(TOOLS).register(editor_tool(ctx, config))
