"""Plays a recorded scenario through the program as a process and says what differs from the recording.

What counts is protocol: exit code, answer, files, request parameters, the shape of the messages, the order
of logged event types. Wording of prompts and tools is ours; where a batch of deltas was cut is chance.
"""

import copy
import json
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dsh.testing.workspace import Finished, Workspace, finish, log_rows
from tests.e2e.model import Model, serve

Json = dict[str, Any]

NO_TITLE_CALL = "- id: session-title-llm\n  disabled: true\n"
SIGNALS = {"kill_after": signal.SIGKILL, "int_after": signal.SIGINT, "term_after": signal.SIGTERM}
"""Options that cut a run short, with the signal each stands for."""
DECIDED: dict[str, Json] = {
    "http-401": {"exit": 4},
    "sigterm": {"exit": 143},
}
"""Where a decision of ours differs from the recording."""
OURS_TO_ORDER = frozenset(
    [
        "session",
        "session/title",
        "session/title-llm-request",
        "permission/preset",
        "sandbox/mode",
        "approval/policy",
    ]
)
"""Rows whose place in the log says nothing about the loop."""
EXACT_RESULTS = frozenset(["bash-echo", "bash-fail", "parallel-reads"])
"""Scenarios in which the results of bash and read are protocol, down to the letter."""
WIRE = ("model", "stream", "stream_options", "thinking", "reasoning_effort", "max_tokens")


class Played(NamedTuple):
    """What a run came to."""

    finished: Finished
    files: dict[str, str]
    requests: list[Json]
    logs: list[Path]


def play(scenario: Json, space: Workspace) -> Played:
    """Run the scenario's prompt against its scripted model."""
    options = scenario["options"]
    for name, text in options.get("files", {}).items():
        space.write(name, text)
    patch = space.root / "no-title.yml"
    patch.write_text(NO_TITLE_CALL)
    with serve(script_in(scenario, space.work)) as model:
        space.use_model(model.base_url)
        process = space.start("--profile", "headless", "--patch", str(patch), scenario["prompt"])
        for option, number in SIGNALS.items():
            if option in options:
                cut(process, options[option], number)
        finished = finish(process)
        return Played(finished, files_below(space.work), bodies(model), space.logs())


def cut(process: "subprocess.Popen[bytes]", after_s: float, number: signal.Signals) -> None:
    """Send a signal to a run that is still there after so long."""
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.send_signal(number)


def script_in(scenario: Json, work: Path) -> list[Json]:
    """The model's replies, with the workspace's path put in and the arguments cut into deltas."""
    script: list[Json] = copy.deepcopy(scenario["model_script"])
    for reply in script:
        for call in reply.get("tools", ()):
            text, width = call.pop("raw").replace("$CWD", str(work)), call.pop("split")
            call["args"] = [text[at : at + width] for at in range(0, len(text), width)] or [""]
    return script


def bodies(model: Model) -> list[Json]:
    return [dict(body) for body in model.bodies()]


def files_below(folder: Path) -> dict[str, str]:
    """All files with the start of their text."""
    return {
        str(path.relative_to(folder)): path.read_text(errors="surrogateescape")[:4000]
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def differences(scenario: Json, played: Played, work: Path) -> Iterator[str]:
    """Everything that is not as recorded."""
    name, is_cut = scenario["name"], any(option in scenario["options"] for option in SIGNALS)
    wanted = {**scenario, **DECIDED.get(name, {})}
    done = played.finished
    if done.code != wanted["exit"]:
        yield f"exit {done.code}, recorded {wanted['exit']}: {done.stderr[-300:]}"
    if "Traceback" in done.stderr:
        yield f"traceback: {done.stderr[-300:]}"
    if played.files != scenario["files_after"]:
        yield f"files {played.files}, recorded {scenario['files_after']}"
    if is_cut:
        return
    if done.stdout != wanted["stdout"]:
        yield f"answer {done.stdout[:80]!r}, recorded {wanted['stdout'][:80]!r}"
    if name in DECIDED:
        return
    if error_code(done.stderr) != error_code(scenario["stderr"]):
        yield f"standard error {done.stderr!r}, recorded {scenario['stderr']!r}"
    yield from request_differences(name, played.requests, [r["body"] for r in scenario["requests"]], work)
    yield from row_differences(played.logs, scenario["row_types"])


def error_code(stderr: str) -> str | None:
    """The code of the first line `dsh: CODE: …`."""
    for line in stderr.splitlines():
        code = line.removeprefix("dsh: ").partition(":")[0]
        if line.startswith("dsh: ") and code and set(code) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ_"):
            return code
    return None


def request_differences(name: str, ours: list[Json], recorded: list[Json], work: Path) -> Iterator[str]:
    if len(ours) != len(recorded):
        yield f"{len(ours)} requests, recorded {len(recorded)}"
    for number, (mine, theirs) in enumerate(zip(ours, recorded, strict=False)):
        for key in WIRE:
            if mine.get(key) != theirs.get(key):
                yield f"request {number}: {key} is {mine.get(key)!r}, recorded {theirs.get(key)!r}"
        pairs = shapes(mine["messages"], str(work)), shapes(theirs["messages"], "/ws")
        if pairs[0] != pairs[1]:
            yield f"request {number}: messages {pairs[0]}, recorded {pairs[1]}"
        elif name in EXACT_RESULTS:
            results = [r.replace(str(work), "/ws") for r in exact_results(mine["messages"])]
            if results != exact_results(theirs["messages"]):
                yield f"request {number}: results {results}, recorded {exact_results(theirs['messages'])}"


def shapes(messages: list[Json], work: str) -> list[Json]:
    """Of each message its role, which parts it has, its calls with their raw arguments, and its call id."""
    return [
        {
            "role": message["role"],
            "has": [key for key in ("content", "reasoning_content") if message.get(key)],
            "calls": [
                (call["id"], call["function"]["name"], call["function"]["arguments"].replace(work, "/ws"))
                for call in message.get("tool_calls") or ()
            ],
            "answers": message.get("tool_call_id"),
        }
        for message in messages
        if message["role"] != "system"
    ]


def exact_results(messages: list[Json]) -> list[str]:
    """The texts that answer calls of bash and read."""
    names: dict[str, str] = {
        call["id"]: call["function"]["name"]
        for message in messages
        for call in message.get("tool_calls") or ()
    }
    return [
        message["content"]
        for message in messages
        if message["role"] == "tool" and names.get(message["tool_call_id"]) in ("bash", "read")
    ]


def row_differences(logs: list[Path], recorded: list[list[str]]) -> Iterator[str]:
    if len(logs) != len(recorded):
        yield f"{len(logs)} logs, recorded {len(recorded)}"
        return
    for log, types in zip(logs, recorded, strict=True):
        theirs = collapsed(types)
        ours = [t for t in collapsed(row["type"] for row in log_rows(log)) if t in set(theirs)]
        if ours != theirs:
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), len(ours))
            yield f"rows differ from {at}: {ours[at : at + 3]}, recorded {theirs[at : at + 3]}"


def collapsed(types: Iterable[str]) -> list[str]:
    """The types in order, a run of delta rows as one, without those whose place is ours to choose."""
    out: list[str] = []
    for kind in types:
        if kind in OURS_TO_ORDER:
            continue
        name = "deltas" if kind == "assistant/chunk" or kind.endswith("-chunks") else kind
        if name != "deltas" or out[-1:] != ["deltas"]:
            out.append(name)
    return out


def load(path: Path) -> Mapping[str, Any]:
    """A recorded scenario."""
    found: Json = json.loads(path.read_text(encoding="utf-8"))
    return found
