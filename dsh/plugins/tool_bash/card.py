"""What displays show of `bash`. Pure; imported where a display asks.

How the command ended stands in the last line of the text alone: there is no `meta`.
"""

import re

from dsh.tools.definition import Args
from dsh.tools.presentation import Outcome, TerminalCall, TerminalResult

_END = re.compile(r"\n?\[(?:exit code: (?P<code>\d{1,9})|killed by signal: (?P<signal>\w+))\]\Z")


def call(args: Args) -> TerminalCall:
    return TerminalCall(title=args["command"], description=args.get("description"), cwd=args.get("workdir"))


def result(args: Args, outcome: Outcome, *, has_no_end: str) -> TerminalResult | None:
    """The output and how the command ended; None for a call that failed or left a job behind.

    Args:
        has_no_end: the line that says that the command has not ended.
    """
    if outcome.is_error or args.get("run_in_background"):
        return None
    text = outcome.text
    if found := _END.search(text):
        code = found["code"]
        output = text[: found.start()]
        return TerminalResult(output=output, exit_code=int(code) if code else None, signal=found["signal"])
    has_ended = has_no_end not in text.rsplit("\n", 3)
    return TerminalResult(output=text, exit_code=0 if has_ended else None)
