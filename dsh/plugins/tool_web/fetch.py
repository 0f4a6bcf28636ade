"""The tool `web_fetch`: one page as text, HTML as Markdown."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dsh.capabilities.web import Web
from dsh.plugins.tool_web import Config
from dsh.tools.definition import Args, ToolDefinition, ToolOutput
from dsh.tools.error import ToolError
from dsh.tools.execution import ToolExecution
from dsh.tools.typed import typed_tool
from dsh.unicode import valid

if TYPE_CHECKING:
    from dsh.tools.presentation import CallCard, Outcome, ResultCard

CUT = "[the page goes on; what follows was left out]"
EMPTY = "(the page has no text)"

_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "url": {"type": "string", "required": True},
        "statusCode": {"type": "integer", "required": True},
        "text": {"type": "string", "required": True},
        "truncated": {"type": "boolean", "required": True},
    },
}


def fetch_tool(web: Web, config: Config) -> ToolDefinition:
    """The definition of `web_fetch`."""

    async def execute(args: Args, execution: ToolExecution) -> dict[str, Any]:
        url = args["url"].strip()
        if not url:
            raise ToolError("url must not be blank")
        page = await web.fetch(url, execution.signal)
        text = valid(page.content)
        if page.kind == "html":
            from dsh.plugins.tool_web.markdown import to_markdown

            text = await execution.signal.race(asyncio.to_thread(to_markdown, text, page.url))
        value = {"url": valid(page.url), "statusCode": page.status_code, "text": text.strip()}
        return {**value, "truncated": page.truncated}

    return typed_tool(
        name="web_fetch",
        description=(
            "Fetch one page from the web and return its text, HTML as Markdown. Only public http and https "
            "pages that hold text; no sign-in, no scripts. A redirect to another site is told, not followed."
        ),
        parameters={"url": {"type": "string", "required": True, "description": "The whole URL."}},
        output=ToolOutput(_VALUE, lambda _, value: _render(value, config.fetch_max_output_chars)),
        execute=execute,
        concurrency_safe=True,
        timeout_ms=config.fetch_timeout_ms,
        present_call=_call_card,
        present_result=_result_card,
    )


def _render(value: Mapping[str, Any], most: int) -> str:
    """At most `most` characters."""
    header = f"{value['url']} — HTTP {value['statusCode']}"
    header = header if len(header) <= most // 2 else header[: most // 2 - 1] + "…"
    text = value["text"] or EMPTY
    room = most - len(header) - 2
    if not value["truncated"] and len(text) <= room:
        return f"{header}\n\n{text}"
    return f"{header}\n\n{text[: room - len(CUT) - 2]}\n\n{CUT}"


def _call_card(args: Args) -> "CallCard":
    from dsh.plugins.tool_web import card  # only displays need it

    return card.fetch_call(args)


def _result_card(args: Args, outcome: "Outcome") -> "ResultCard | None":
    from dsh.plugins.tool_web import card

    return card.fetch_result(args, outcome)
