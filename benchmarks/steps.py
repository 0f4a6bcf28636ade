"""In process: many steps in one session, and many agents at once. Prints one figure a line, by name.

The rows of a headless run that look at every step, a model that follows a script and a tool that answers at
once: what is left is the cost of the loop. With `--server URL` the model is behind the real adapter and a
`benchmarks.stream_server`. Run by `python -m benchmarks`, or alone: `python -m benchmarks.steps`.
"""

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import kept_kib
from dsh.agent.contract import Agent, AgentOptions, CreateAgent
from dsh.agent.registry import AGENTS
from dsh.capabilities.http import HTTP
from dsh.capabilities.launch import HOME_PATH, LAUNCH_ENVIRONMENT
from dsh.composition.compose import compose
from dsh.composition.environment import Environment
from dsh.composition.home import HomePaths
from dsh.composition.mount.loader import Facts, Loader
from dsh.composition.profile import PATCH_FILE, PROFILE_FILE, profile_folder
from dsh.kernel import Context
from dsh.llm.adapter import LlmAdapter, ModelInfo
from dsh.llm.chat.body import WireMessages
from dsh.llm.chat.dialect import DEEPSEEK
from dsh.llm.registry import LLM
from dsh.llm.request import LlmRequest
from dsh.llm.transport.body import encode_wire
from dsh.session.chunk import BlockEnd, BlockStart, Chunk, Finish, TextDelta, ToolCallDelta, UsageChunk
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.session.value import encode
from dsh.tools.definition import TEXT_OUTPUT
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool

STEPS, ROUNDS = 1_000, 60
AGENTS_AT_ONCE, STEPS_OF_EACH = 200, 5
WORDS = "The next file of the list holds what was asked for. " * 4
OUTPUT = "total 48\n" + "-rw-r--r-- 1 me me 1234 Jan  1 00:00 file.txt\n" * 20


class Script(LlmAdapter):
    """Asks for one call a step: in the first turn of a session as often as its model says (`calls-N`), then
    once in each turn."""

    def __init__(self) -> None:
        self._asked: dict[str | None, int] = {}

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        return ModelInfo(provider=provider, id=model, name=model, context_window=10_000_000)

    async def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        step = self._asked[request.session_id] = self._asked.get(request.session_id, 0) + 1
        later = step - 1 - int(request.config.model.partition("-")[2])
        asks = later < 0 or later % 2 == 1
        yield BlockStart(0, "text")
        yield TextDelta(0, WORDS)
        yield BlockEnd(0, {"type": "text", "text": WORDS})
        if asks:
            call_id, raw = f"call-{step}", f'{{"path":"file-{step}.txt"}}'
            call = {"type": "tool-call", "id": call_id, "name": "look", "arguments": raw}
            yield BlockStart(1, "tool-call")
            yield ToolCallDelta(1, call_id, "look", raw)
            yield BlockEnd(1, call)
        yield UsageChunk({"inputTokens": 100 * step, "outputTokens": 60})
        yield Finish({"kind": "tool-calls" if asks else "stop"})


@asynccontextmanager
async def composition(root: Path, url: str | None) -> AsyncIterator[Context]:
    """The rows that every profile starts from, but its bash; home below `root`, the provider at `url`."""
    home = root / "home"
    profile = profile_folder(home, "steps") / PROFILE_FILE
    profile.parent.mkdir(parents=True)
    profile.write_text("bundles: [base]\n")
    profile.with_name(PATCH_FILE).write_text("- id: tool-bash\n  disabled: true\n")
    variables = {"DEEPSEEK_API_KEY": "benchmark", "DSH_PERMISSION_MODE": "danger-full-access"}
    if url is not None:
        variables["DEEPSEEK_BASE_URL"] = url
    ctx = Context()
    ctx.provide(LAUNCH_ENVIRONMENT, Environment(variables, []))
    ctx.provide(HOME_PATH, HomePaths(home))
    try:
        loader = Loader(ctx, Facts(home, "steps", str(root), variables))
        await loader.load(compose("steps", [], home))
        loader.require_active()
        gc.freeze()  # as the start of the program does
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


async def prompt(runner: Agent) -> float:
    """CPU seconds that the loop's thread spends on one turn."""
    begin = time.thread_time()
    runner.followup(user_message("go"))
    await runner.when_idle()
    spent = time.thread_time() - begin
    check(runner)
    return spent


async def turns(ctx: Context, provider: str, model: str, other: str) -> tuple[float, float, Session]:
    """CPU seconds of one turn in a session of many steps, and in a new one; the long session.

    Turns of both take turns, so that whatever else the machine does falls on both. A quick one of each
    counts: others only ever add.
    """
    long = await made(ctx, provider, model)
    await prompt(long)
    short = await made(ctx, provider, other)
    await prompt(short)
    spent = [(await prompt(long), await prompt(short)) for _ in range(ROUNDS)]
    late, early = (sorted(times)[ROUNDS // 4] for times in zip(*spent, strict=True))
    return late, early, long.session


async def sending(ctx: Context, url: str, size_bytes: int) -> float:
    """CPU seconds to put that many bytes into one piece and send it, beyond those of a short request."""
    url, headers = f"{url}/chat/completions", {"content-type": "application/json"}
    spent: list[list[float]] = []
    for padding in (0, size_bytes):
        body = bytearray(encode({"model": "text-1", "messages": [], "padding": "x" * padding}))
        spent.append([])
        for _ in range(ROUNDS):
            begin = time.thread_time()
            stream = await ctx.use(HTTP).open("POST", url, headers=headers, content=bytes(body))
            while await stream.read():
                pass
            await stream.aclose()
            spent[-1].append(time.thread_time() - begin)
    short, long = (sorted(times)[ROUNDS // 4] for times in spent)
    return long - short


async def crowd(ctx: Context) -> tuple[float, float]:
    """CPU milliseconds and KiB of one agent among many that run at once, each to its end."""
    gc.collect()
    before, begin = kept_kib(), time.thread_time()
    runners = [await made(ctx, "script", f"calls-{STEPS_OF_EACH - 1}") for _ in range(AGENTS_AT_ONCE)]
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
    if last.type != "turn/end" or last.data["reason"] != {"kind": "completed"}:
        raise RuntimeError(f"{runner} ended with {last}")


async def figures(root: Path, url: str | None) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    async with composition(root, url) as ctx:
        ctx.use(LLM).register_adapter(["script"], Script())
        late, early, log = await turns(ctx, "script", f"calls-{STEPS}", "calls-0")
        found += [("step_us", late * 1e6 / 2), ("step_growth", late / early), ("events", log.length)]
        if url is not None:
            late, early, log = await turns(ctx, "deepseek-official", f"turns-{STEPS}", "text-2")
            size_bytes = len(encode_wire(WireMessages(DEEPSEEK, "").of(log.derive_messages())))
            sent = await sending(ctx, url, size_bytes)
            found += [("wire_us", late * 1e6), ("wire_growth", (late - sent) / early)]
            found += [("sent_kib", size_bytes / 1024), ("sent_us", sent * 1e6)]
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
