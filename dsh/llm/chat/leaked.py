"""Tool calls that a model wrote in its own markup and a server passed on as text (`dsh.llm.chat.translator`).

The markup is that of DeepSeek's models in all spellings that were seen (`<｜tool▁calls▁begin｜>`,
`<｜DSML｜tool_calls>`; wide, double and ASCII bars), Kimi's, which is like it, and that of the models people
serve themselves: `<tool_call>` and `<function=…>` (Qwen, Hermes, GLM), `<function_calls>`, `[TOOL_CALLS]`
(Mistral), `<|channel|>` (gpt-oss). Such a reply is no answer, and nothing in it is executed.

The rule, applied to the whole text of a reply without a proper call:

1. An opening token counts where it is neither quoted (behind a quotation mark, a backtick, an escaped line
   end) nor in a code fence, inline code, an indented line or a marked one (`>`, `+`, `-`, `#`).
2. What follows it is a call: the name of a tool and the start of its arguments, or the end of the text in
   the midst of them; behind DeepSeek's and Kimi's tokens also nothing at all, where the reply was cut there.
3. The markup runs to the end: behind the last closing token stands nothing, or more markup. A call that is
   never closed takes the rest with it.

So a text about such markup passes: it is quoted, in code, names no call, or goes on in words.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator

_NAME = r"[A-Za-z_][\w.:-]{0,200}"
_BAR = "[|\uff5c\u2016]"
_JOIN = "[_\u2581 ]"
_TOOL = rf"tool{_JOIN}calls?(?:{_JOIN}section)?{_JOIN}"
_BEGIN = rf"<{_BAR}{_TOOL}begin{_BAR}>"
_SEPARATOR = rf"<{_BAR}tool{_JOIN}(?:sep|call{_JOIN}argument{_JOIN}begin){_BAR}>"
_DSML = rf"{_BAR}{{1,2}}\s?DSML\s?{_BAR}{{1,2}}\s?"
_CALLS = r"(?:function_|tool_)?calls\s?>"
_SECTION = rf"<\s?{_DSML}{_CALLS}"
_TAG = r"<(?:(?:function|tool)_calls|(?:minimax:)?tool_call)>"
_OPEN = re.compile(
    rf"{_BEGIN}|{_SECTION}|<\s?{_DSML}invoke\s|{_TAG}|<function=|\[TOOL_CALLS\]|<\|channel\|>", re.ASCII
)
_INVOKED = rf"<\s?(?:{_DSML})?invoke\s(?:\s*name=[^<>\n]{{0,260}}>\s*(?:[<{{]|\Z)|[^<>\n]{{0,260}}\Z)"
_FUNCTION = rf"<function=(?:{_NAME}>\s*(?:[<{{]|\Z)|[\w.:-]{{0,200}}\Z)"
_CUT = r"(?:<[^<>\n]{0,60}>?)?\s*+\Z"
_CALL = re.compile(
    rf"""
    (?:{_BEGIN}\s*+)++ (?:
        (?:{_NAME})?+ {_SEPARATOR} \s*+ (?: \{{ | {_NAME} \s*+ (?: ``` | \{{ | `{{0,2}}\Z ) | \Z )
      | {_NAME} \s*+ \{{
      | (?:{_NAME})?+ {_CUT}
    )
  | (?:{_SECTION}\s*+)++ (?: {_INVOKED} | {_CUT} )
  | {_INVOKED}
  | {_TAG} \s*+ (?:
        \{{ \s* "(?:name|arguments)" | {_FUNCTION} | {_INVOKED} | {_NAME} \s* (?: <arg_key> | </tool_call> )
    )
  | {_FUNCTION}
  | \[TOOL_CALLS\] \s*+ (?: \[? \s* \{{ | {_NAME} \s* (?: \[(?:ARGS|CALL_ID)\] | \{{ ) )
  | <\|channel\|> (?:commentary|analysis) \s to= {_NAME} [^\n]{{0,80}}? (?: <\|message\|> | \Z )
    """,
    re.ASCII | re.VERBOSE,
)
_CLOSE = re.compile(
    rf"<{_BAR}{_TOOL}end{_BAR}>|<\s?/\s?{_DSML}(?:{_CALLS}|(?:invoke|parameter)\s?>)"
    r"|</(?:(?:function|tool)_calls|(?:minimax:)?tool_call|function|invoke)>|<\|call\|>",
    re.ASCII,
)
_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}|~{3,})[^\n]*$", re.MULTILINE)
_ASIDE = re.compile(r" {4,}|[ \t]*\t|[ \t]*(?:[>+#*-]|//)[>+#*\s-]*")
_QUOTES = "\"'`\u201c\u2018\u00ab\u300c\u300e\u300a\u3010\uff08(["
_LOOK_BACK_CHARS = 2000
"""How far back in its line inline code is looked for."""


def is_leaked_call(text: str) -> bool:
    """Whether the text of a reply holds a tool call in markup, and not words about one."""
    closings = [found.end() for found in _CLOSE.finditer(text)]
    closed_at = closings[-1] if closings else 0
    rest = text[closed_at:].strip()
    goes_on_in_words = bool(rest) and not rest.startswith("<")
    fences: list[int] | None = None
    for at in _beginnings(text):
        if goes_on_in_words and at < closed_at:
            continue
        if _CALL.match(text, at) is None or _is_quoted(text, at):
            continue
        if fences is None:
            fences = _fences(text)
        if not _in_code(text, at, fences):
            return True
    return False


def _beginnings(text: str) -> Iterator[int]:
    """Where opening tokens stand; of several in a row, where the first does."""
    end = -1
    for opening in _OPEN.finditer(text):
        if end < 0 or text[end : opening.start()].strip():
            yield opening.start()
        end = opening.end()


def _is_quoted(text: str, at: int) -> bool:
    """Whether what stands right before a place, or before it in its line, says that it is a quotation."""
    if at and (text[at - 1] in _QUOTES or text.endswith("\\n", 0, at)):
        return True
    line = max(text.rfind("\n", 0, at) + 1, at - _LOOK_BACK_CHARS)
    return _ASIDE.fullmatch(text, line, at) is not None


def _fences(text: str) -> list[int]:
    """Where code fences begin and end, by turns."""
    marks, fence = list[int](), ""
    for line in _FENCE.finditer(text):
        mark = line[1]
        if not fence:
            fence = mark
            marks.append(line.start())
        elif mark[0] == fence[0] and len(mark) >= len(fence):
            fence = ""
            marks.append(line.start())
    return marks


def _in_code(text: str, at: int, fences: list[int]) -> bool:
    """Whether a place is inside a code fence or inline code."""
    line = max(text.rfind("\n", 0, at) + 1, at - _LOOK_BACK_CHARS)
    return bisect_left(fences, at) % 2 == 1 or text.count("`", line, at) % 2 == 1
