"""In process: many steps in one session, and many agents at once. Prints one figure a line, by name.

The rows of a headless run that look at every step, a model that follows a script and a tool that answers at
once: what is left is the cost of the loop. With `--server URL` the model is behind the real adapter and a
`benchmarks.stream_server`. Run by `python -m benchmarks`, or alone: `python -m benchmarks.steps`.
"""

import argparse
import asyncio
import gc
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from dsh.agent.contract import Agent, AgentOptions, CreateAgent
from dsh.agent.registry import AGENTS
from dsh.capabilities.http import HTTP
from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.composition.environment import Environment
from dsh.kernel import Context
from dsh.llm.adapter import LlmAdapter, ModelInfo
from dsh.llm.chat_completions import encode_wire, wire_messages
from dsh.llm.registry import LLM
from dsh.llm.request import LlmRequest
from dsh.plugins import (
    agent,
    agent_loop,
    llm,
    llm_deepseek,
    llm_retry,
    session,
    session_checkpoint_policy,
    session_persistence_jsonl,
    session_projection,
    session_stats,
    system_prompt,
    token_meter,
    tools,
)
from dsh.session.chunk import BlockEnd, BlockStart, Chunk, Finish, TextDelta, ToolCallDelta, UsageChunk
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.session.store import SESSION_EVENT, Appended
from dsh.session.value import encode
from dsh.tools.definition import TEXT_OUTPUT
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool

STEPS, EDGE = 1_000, 100
AGENTS_AT_ONCE, STEPS_OF_EACH = 200, 5
WORDS = "The next file of the list holds what was asked for. " * 4
OUTPUT = "total 48\n" + "-rw-r--r-- 1 me me 1234 Jan  1 00:00 file.txt\n" * 20


class Script(LlmAdapter):
    """Asks for one call a step, so many times in each session, and then says that it is done."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._asked: dict[str | None, int] = {}

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        return ModelInfo(provider=provider, id=model, name=model, context_window=10_000_000)

    async def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        step = self._asked[request.session_id] = self._asked.get(request.session_id, 0) + 1
        yield BlockStart(0, "text")
        yield TextDelta(0, WORDS)
        yield BlockEnd(0, {"type": "text", "text": WORDS})
        if step < self._steps:
            call_id, raw = f"call-{step}", f'{{"path":"file-{step}.txt"}}'
            call = {"type": "tool-call", "id": call_id, "name": "look", "arguments": raw}
            yield BlockStart(1, "tool-call")
            yield ToolCallDelta(1, call_id, "look", raw)
            yield BlockEnd(1, call)
        yield UsageChunk({"inputTokens": 100 * step, "outputTokens": 60})
        yield Finish({"kind": "tool-calls" if step < self._steps else "stop"})


@asynccontextmanager
async def composition(root: Path, url: str | None) -> AsyncIterator[Context]:
    """The rows, with their logs below `root` and the provider at `url`."""
    ctx = Context()
    ctx.provide(LAUNCH_ENVIRONMENT, Environment({"DEEPSEEK_API_KEY": "benchmark"}, []))
    rows: Sequence[tuple[ModuleType, dict[str, Any]]] = (
        (session, {}),
        (session_persistence_jsonl, {"root": str(root)}),
        (session_checkpoint_policy, {}),
        (session_projection, {}),
        (session_stats, {}),
        (token_meter, {}),
        (llm, {}),
        (llm_retry, {}),
        (llm_deepseek, {"baseURL": url} if url else {}),
        (agent, {}),
        (tools, {}),
        (system_prompt, {}),
        (agent_loop, {}),
    )
    try:
        fibers = [ctx.plugin(module, config) for module, config in rows]
        while waiting := [fiber for fiber in fibers if not fiber.is_active]:
            await asyncio.gather(*waiting)
        for name in ("look", "bash"):
            ctx.use(TOOLS).register(
                typed_tool(
                    name=name,
                    description="Look at something.",
                    parameters={},
                    output=TEXT_OUTPUT,
                    execute=_look,
                )
            )
        yield ctx
    finally:
        await ctx.dispose()


async def _look(args: Any, execution: Any) -> str:
    return OUTPUT


async def made(ctx: Context, provider: str, model: str) -> Agent:
    request = CreateAgent(cwd="/srv/app", options=AgentOptions(provider=provider, model=model))
    return (await ctx.use(AGENTS).create(request)).agent


async def long_session(ctx: Context, provider: str, model: str) -> tuple[list[float], Session]:
    """CPU seconds of the loop's thread for each step of one session, and the session."""
    marks: list[float] = []
    runner = await made(ctx, provider, model)

    def observe(appended: Appended) -> None:
        if appended.event.type == "step/start" and appended.session is runner.session:
            marks.append(time.thread_time())

    listening = ctx.on(SESSION_EVENT, observe)
    runner.followup(user_message("go"))
    await runner.when_idle()
    await listening()
    check(runner)
    return [after - before for before, after in pairwise(marks)], runner.session


def edges(steps: Sequence[float]) -> tuple[float, float]:
    """A quick step of the first hundred and of the last: others share the machine, and only ever add."""
    return sorted(steps[:EDGE])[EDGE // 4], sorted(steps[-EDGE:])[EDGE // 4]


async def sending(ctx: Context, url: str, size_bytes: int) -> float:
    """CPU seconds to put that many bytes into one piece and send it, beyond those of a short request."""
    url, headers = f"{url}/chat/completions", {"content-type": "application/json"}
    spent: list[list[float]] = []
    for padding in (0, size_bytes):
        body = bytearray(encode({"model": "text-1", "messages": [], "padding": "x" * padding}))
        spent.append([])
        for _ in range(EDGE):
            begin = time.thread_time()
            stream = await ctx.use(HTTP).open("POST", url, headers=headers, content=bytes(body))
            while await stream.read():
                pass
            await stream.aclose()
            spent[-1].append(time.thread_time() - begin)
    short, long = (sorted(times)[EDGE // 4] for times in spent)
    return long - short


async def crowd(ctx: Context) -> tuple[float, float]:
    """CPU milliseconds and KiB of one agent among many that run at once, each to its end."""
    gc.collect()
    before, begin = kept_kib(), time.thread_time()
    runners = [await made(ctx, "script", "few") for _ in range(AGENTS_AT_ONCE)]
    for runner in runners:
        runner.followup(user_message("go"))
    await asyncio.gather(*(runner.when_idle() for runner in runners))
    spent = time.thread_time() - begin
    gc.collect()
    kept = kept_kib() - before
    for runner in runners:
        check(runner)
    return spent * 1000 / AGENTS_AT_ONCE, kept / AGENTS_AT_ONCE


def check(runner: Agent) -> None:
    last = runner.session.event(runner.session.length - 1)
    if last.data != {"turn": 1, "reason": {"kind": "completed"}}:
        raise RuntimeError(f"{runner} ended with {last}")


def kept_kib() -> float:
    """Resident memory now, in KiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024


async def figures(root: Path, url: str | None) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    async with composition(root, url) as ctx:
        models = ctx.use(LLM)
        for name, steps in (("warm", 2 * EDGE), ("long", STEPS)):
            route = models.register_adapter([name], Script(steps + 1))
            spent, log = await long_session(ctx, name, "scripted")
            route.dispose()
        first, last = edges(spent)
        found += [("step_us", last * 1e6), ("step_growth", last / first), ("events", log.length)]
        if url is not None:
            await long_session(ctx, "deepseek-official", f"turns-{EDGE}")
            spent, log = await long_session(ctx, "deepseek-official", f"turns-{STEPS}")
            first, last = edges(spent)
            size_bytes = len(encode_wire(wire_messages(None, log.derive_messages())))
            sent = await sending(ctx, url, size_bytes)
            found += [("wire_us", last * 1e6), ("wire_growth", (last - sent) / first)]
            found += [("sent_kib", size_bytes / 1024), ("sent_us", sent * 1e6)]
        models.register_adapter(["script"], Script(STEPS_OF_EACH))
        ms, kib = await crowd(ctx)
        found += [("agent_ms", ms), ("agent_kib", kib)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps")
    parser.add_argument("--server", metavar="URL", help="base URL of a running stream server")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, value in asyncio.run(figures(Path(folder), options.server)):
            sys.stdout.write(f"{name} {value:.6g}\n")


if __name__ == "__main__":
    main()
