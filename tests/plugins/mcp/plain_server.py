"""An MCP server of the standard library alone, which does what its plan (JSON, the first argument) says.

Run by path. Keys of the plan, all optional:
`tools` entries, or lists of entries for pages; `changed` those after the tool `change`, or `crash`
`shuffle` any order; `restless` says after each list that it has changed; `cursor` one cursor for every page
`answers` method to result; `refuses` method to error code; `silent` methods that get no answer
`era` the protocol version; `newer` no handshake, but discovery, and changes for those who listen
`noise` printed before each answer; `say` stderr at the start
`exit` leave at the start with this code; `once` a file: come up only where it is missing; `unless` a file:
leave where it is missing; `meets` a file that has to be there before anything is answered
`pid` a file that gets a line with the process id at each start; `heard` one that gets every message; `child`
one that gets the id of a process that would outlive us; `linger` ignore the end of input and SIGTERM
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

plan: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
changed = False
listening: dict[str, Any] = {}
"""What is said with changes to a client of the newer protocol."""
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def send(message: dict[str, Any]) -> None:
    raw(json.dumps({"jsonrpc": "2.0", **message}))


def raw(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape") + b"\n")
    sys.stdout.buffer.flush()


def note(name: str, text: str) -> None:
    if plan.get(name):
        with Path(plan[name]).open("a", encoding="utf-8") as file:
            file.write(text + "\n")


def result(request: dict[str, Any]) -> Any:
    method, params = request["method"], request.get("params") or {}
    if method in plan.get("answers", {}):
        return plan["answers"][method]
    if method in plan.get("refuses", {}):
        send({"id": request["id"], "error": {"code": plan["refuses"][method], "message": "no such thing"}})
        return None
    if method == "initialize":
        return {
            "protocolVersion": plan.get("era", params["protocolVersion"]),
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "plain", "version": "1"},
        }
    if method == "server/discover":
        tools = {"tools": {"listChanged": True}}
        return {"supportedVersions": ["2026-07-28"], "capabilities": tools}
    if method == "subscriptions/listen":
        listening["_meta"] = {"io.modelcontextprotocol/subscriptionId": request["id"]}
        heard = {"method": "notifications/subscriptions/acknowledged"}
        send({**heard, "params": {**listening, "notifications": params["notifications"]}})
        return None
    if method == "tools/list":
        if changed and plan.get("changed") == "crash":
            os._exit(7)
        if plan.get("restless"):
            send({"method": "notifications/tools/list_changed"})
        return page(params.get("cursor"))
    if method == "tools/call":
        return call(params["name"], params.get("arguments") or {}, params.get("_meta") or {}, request["id"])
    return None


def page(cursor: str | None) -> dict[str, Any]:
    tools = plan["changed"] if changed and "changed" in plan else plan.get("tools", DEFAULT)
    if plan.get("shuffle"):
        tools = random.sample(tools, len(tools))
    pages = tools if tools and isinstance(tools[0], list) else [tools]
    at = int(cursor.split("-")[1]) if cursor else 0
    out: dict[str, Any] = {"tools": pages[at % len(pages)]}
    if "cursor" in plan:
        out["nextCursor"] = plan["cursor"]
    elif at + 1 < len(pages):
        out["nextCursor"] = f"page-{at + 1}"
    return out


def call(name: str, arguments: dict[str, Any], meta: dict[str, Any], request_id: Any) -> Any:
    global changed
    if name == "env":
        return text("\n".join(f"{key}={value}" for key, value in sorted(os.environ.items())))
    if name == "crash":
        sys.stderr.write("about to crash\n")
        os._exit(7)
    if name == "sleep":
        time.sleep(arguments.get("seconds", 60))
    if name == "progress":
        for at in range(arguments["times"]):
            token = {"progressToken": meta.get("progressToken"), "progress": at}
            send({"method": "notifications/progress", "params": token})
            time.sleep(arguments["gap"])
    if name == "change":
        changed = True
        if listening or not plan.get("newer"):
            send({"method": "notifications/tools/list_changed", "params": listening})
    if name == "error":
        return {"content": [{"type": "text", "text": "it went wrong"}], "isError": True}
    if name == "refuse":
        send({"id": request_id, "error": {"code": -32000, "message": "not today"}})
        return None
    if name == "answer":
        if "flood" in arguments:
            raw('{"jsonrpc":"2.0","x":"' + "x" * arguments["flood"])
        return arguments["result"]
    if name == "raw":
        raw(arguments["line"].replace("ID", str(request_id)))
        return None
    if name == "pid":
        return text(str(os.getpid()))
    return text(json.dumps({"tool": name, "arguments": arguments}, sort_keys=True))


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"does {name}", "inputSchema": {"type": "object"}, **more}


NAMES = ("env", "crash", "sleep", "progress", "change", "error", "refuse", "answer", "raw", "pid", "echo")
DEFAULT = [tool(name) for name in NAMES]


def main() -> None:
    note("pid", str(os.getpid()))
    if "say" in plan:
        sys.stderr.write(plan["say"])
        sys.stderr.flush()
    if "once" in plan:
        if Path(plan["once"]).exists():
            sys.exit(5)
        Path(plan["once"]).touch()
    if "exit" in plan or ("unless" in plan and not Path(plan["unless"]).exists()):
        sys.exit(plan.get("exit", 1))
    if "child" in plan:
        note("child", str(subprocess.Popen(["sleep", "321"]).pid))
    while "meets" in plan and not Path(plan["meets"]).exists():
        time.sleep(0.01)
    if plan.get("linger"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        note("heard", line.strip())
        message = json.loads(line)
        if "noise" in plan:
            raw(plan["noise"])
        if "id" not in message or "method" not in message or message["method"] in plan.get("silent", ()):
            continue
        if (found := result(message)) is not None:
            rest = COMPLETE if plan.get("newer") and isinstance(found, dict) else {}
            send({"id": message["id"], "result": {**rest, **found} if rest else found})
    while plan.get("linger"):
        time.sleep(60)


if __name__ == "__main__":
    main()
