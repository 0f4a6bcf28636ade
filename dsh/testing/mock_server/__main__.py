"""`python -m dsh.testing.mock_server`: the mock model server as a command that tells what happens.

Standard output gets JSON lines: `ready {baseURL, randomSeed}`, then `request` and `result` for each accepted
request. A request that is refused gets its reason as the answer.
"""

import argparse
import asyncio
import json
import random
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from dsh.testing.mock_server.behaviour import ALL_BEHAVIOURS
from dsh.testing.mock_server.plan import MockOptions, check_delay
from dsh.testing.mock_server.script import Entry
from dsh.testing.mock_server.server import MockModelServer, RecordedRequest
from dsh.testing.mock_server.strict.rules import Rules

_TEXT_OPTIONS = (
    "success_text",
    "partial_text",
    "reasoning_text",
    "request_id",
    "tool_name",
    "tool_arguments",
)
SECRET = ("authorization", "x-api-key")
_NUMBER_OPTIONS = ("chunk_delay_ms", "disconnect_delay_ms", "retry_after_ms")


def main(argv: list[str] | None = None) -> int:
    """Serve until a signal comes; 130 for SIGINT, 143 for SIGTERM, 2 for a wrong command line."""
    args = _parser().parse_args(argv)
    return asyncio.run(_serve(args))


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"mock_server: {message}\n")


def weights(text: str) -> dict[str, Any]:
    """A JSON object of weights. Raises ValueError."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)
    return value


def _parser() -> argparse.ArgumentParser:
    defaults = MockOptions()
    parser = _Parser(prog="python -m dsh.testing.mock_server", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument(
        "--dialect",
        choices=("deepseek", "openai", "anthropic"),
        default="deepseek",
        help="whose base URL is told, and how chat completions are spelled",
    )
    parser.add_argument("--api-key", help="the key to insist on")
    parser.add_argument("--models", default="mock", help="what is listed, separated by commas")
    parser.add_argument("--lenient", action="store_true", help="accept any JSON object")
    parser.add_argument("--refuse", default="", help="what it cannot take, separated by commas")
    parser.add_argument(
        "--sequence",
        default="success",
        help="behaviours, separated by commas: connection_refused (first only), random, "
        + ", ".join(ALL_BEHAVIOURS),
    )
    parser.add_argument("--script", type=Path, help="JSON file: a list of behaviours and free-form replies")
    parser.add_argument("--repeat-last", action="store_true")
    parser.add_argument("--seed", type=int, help="of the random behaviours, 0 to 2^32-1; told in `ready`")
    parser.add_argument("--random-weights", type=weights, help='JSON object, such as {"success": 3}')
    parser.add_argument("--chunk-size", type=int, default=defaults.chunk_size, help="code points per delta")
    parser.add_argument("--listen-delay-ms", type=float, default=750, help="for connection_refused")
    for name in _TEXT_OPTIONS:
        parser.add_argument(f"--{name.replace('_', '-')}", default=getattr(defaults, name))
    for name in _NUMBER_OPTIONS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=getattr(defaults, name))
    return parser


async def _serve(args: argparse.Namespace) -> int:
    try:
        check_delay("listen_delay_ms", args.listen_delay_ms)
        script = _script(args)
        refused = script[:1] == ["connection_refused"]
        server = _server(args, script[1:] if refused else script, needs_port=refused)
        return await _run(server, args.dialect, args.listen_delay_ms / 1000 if refused else None)
    except (ValueError, OSError) as error:
        print(f"mock_server: {error}", file=sys.stderr)  # noqa: T201
        return 2


def _script(args: argparse.Namespace) -> list[Entry]:
    script: list[Entry] = list(_words(args.sequence))
    if args.script is not None:
        try:
            script = json.loads(args.script.read_bytes())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{args.script}: it is not JSON: {error}") from None
        if not isinstance(script, list):
            raise ValueError(f"{args.script}: a script is a list of behaviours and replies")
    if not script:
        raise ValueError("a script has at least one entry")
    return script


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _server(args: argparse.Namespace, script: list[Entry], *, needs_port: bool) -> MockModelServer:
    names = (*_TEXT_OPTIONS, *_NUMBER_OPTIONS, "chunk_size")
    return MockModelServer(
        script,
        repeat_last=args.repeat_last,
        api_key=args.api_key,
        dialect="openai" if args.dialect == "openai" else "deepseek",
        rules=Rules(is_strict=not args.lenient, refuses=_words(args.refuse)),
        models=_words(args.models),
        options=MockOptions(**{name: getattr(args, name) for name in names}),
        seed=args.seed if args.seed is not None else random.SystemRandom().randrange(2**32),
        random_weights=args.random_weights,
        host=args.host,
        port=args.port or (_free_port(args.host) if needs_port else 0),
        observe=_tell,
    )


async def _run(server: MockModelServer, dialect: str, listen_delay_s: float | None) -> int:
    """Serve until a signal comes; with a delay, tell the address first and listen later."""

    def ready() -> dict[str, Any]:
        url = server.anthropic_url if dialect == "anthropic" else server.base_url
        return {"type": "ready", "baseURL": url, "randomSeed": server.seed}

    end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        asyncio.get_running_loop().add_signal_handler(number, _resolve, end, code)
    if listen_delay_s is not None:
        _say(ready())
        await asyncio.wait((end,), timeout=listen_delay_s)
    async with server:
        if listen_delay_s is None:
            _say(ready())
        return await end


def _resolve(end: "asyncio.Future[int]", code: int) -> None:
    if not end.done():
        end.set_result(code)


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _tell(kind: str, record: RecordedRequest) -> None:
    value: dict[str, Any] = {"type": kind, "attempt": record.attempt}
    if kind == "result":
        value |= {"behavior": record.behavior, "outcome": record.outcome, "chunksSent": record.chunks_sent}
    else:
        headers = {name: "***" if name in SECRET else v for name, v in record.headers.items()}
        value |= {"scriptBehavior": record.script_behavior, "behavior": record.behavior}
        value["dialect"] = record.dialect
        value |= {"path": record.path, "headers": headers, "body": record.body}
    _say(value)


def _say(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
