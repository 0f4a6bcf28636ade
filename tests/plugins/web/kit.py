"""What tests of the web rows share: the service on a real kernel, providers of a few lines, a registry."""

import json
from collections.abc import Mapping
from typing import Any, cast

from dsh.capabilities.credentials import CREDENTIALS, Credential
from dsh.capabilities.http import HTTP, HttpClient
from dsh.capabilities.launch import LaunchEnvironment
from dsh.capabilities.web import WEB, Web, WebFindings, WebPage, WebQuery, WebSource
from dsh.kernel import CancelToken, Context
from dsh.plugins import tool_web, web
from dsh.tools.registry import ToolRegistry
from tests.llm.wire_server import response
from tests.tools.kit import StandInAgent, call


class StandInSearch:
    """A provider that finds what it was given."""

    def __init__(self, name: str = "one", *urls: str, problem: str | None = None, content: str = "") -> None:
        self.id, self.trouble, self.content = name, problem, content
        self.urls = urls or ("https://a.example/",)
        self.queries: list[WebQuery] = []

    def problem(self) -> str | None:
        return self.trouble

    async def search(self, query: WebQuery) -> WebFindings:
        self.queries.append(query)
        sources = tuple(WebSource(url=url) for url in self.urls)
        return WebFindings(sources=sources, content=self.content or None)


class StandInFetch:
    """A provider whose pages are all the same."""

    def __init__(self, page: WebPage | None = None, name: str = "pages") -> None:
        self.id, self.trouble = name, None
        self.page = page or WebPage(url="https://a.example/", status_code=200, kind="text", content="words")
        self.asked: list[str] = []

    def problem(self) -> str | None:
        return self.trouble

    async def fetch(self, url: str, signal: CancelToken) -> WebPage:
        self.asked.append(url)
        return self.page


class StandInKeys:
    """Keys by name."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self.keys = dict(keys)

    def resolve(self, ref: str) -> Credential | None:
        found = self.keys.get(ref)
        return None if found is None else Credential(found, "file", ".credentials.yaml")


class StandInVariable:
    """One variable of the launch environment."""

    source, path = "process", None

    def __init__(self, value: str) -> None:
        self.value = value


class StandInEnvironment:
    """The launch environment."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)

    def get(self, name: str) -> StandInVariable | None:
        return StandInVariable(self._variables[name]) if name in self._variables else None


def environment(variables: Mapping[str, str]) -> LaunchEnvironment:
    return cast(LaunchEnvironment, StandInEnvironment(variables))


async def mounted(config: Mapping[str, Any] | None = None) -> tuple[Context, Web]:
    """The row `web` alone."""
    ctx = Context()
    await ctx.plugin(web, dict(config or {}))
    return ctx, ctx.use(WEB)


async def with_tools(**config: Any) -> tuple[Context, Web, ToolRegistry]:
    """The rows `web` and `tool-web`, and a registry."""
    ctx, service = await mounted()
    registry = ToolRegistry(ctx)
    await ctx.plugin(tool_web, config)
    return ctx, service, registry


async def with_provider(
    row: Any, config: Mapping[str, Any], keys: Mapping[str, str]
) -> tuple[Context, Web, StandInKeys]:
    """A search row with the real HTTP client."""
    ctx, service = await mounted()
    http, stored = HttpClient(), StandInKeys(keys)
    ctx.provide(HTTP, http)
    ctx.effect(lambda: http.aclose, "http")
    ctx.provide(CREDENTIALS, stored)
    await ctx.plugin(row, dict(config))
    return ctx, service, stored


def query(text: str = "what", **more: Any) -> WebQuery:
    return WebQuery(**{"text": text, "max_results": 8, "signal": CancelToken(), **more})


def json_response(value: Any, status: str = "200 OK") -> bytes:
    made = response(json.dumps(value).encode(), "content-type: application/json")
    return made.replace(b"200 OK", status.encode(), 1)


def agent(ctx: Context) -> StandInAgent:
    made = StandInAgent(ctx)
    made.open_turn()
    return made


async def ran(registry: ToolRegistry, tool: str, arguments: Any, who: Any = None) -> Any:
    return await registry.run(call(tool, arguments, agent=who))
