"""Tool calls that a model wrote in its own markup and a server passed on as text (`dsh.llm.chat.translator`).

The markup is that of DeepSeek's models (`<｜tool▁calls▁begin｜>`, `<｜DSML｜function_calls>`), with wide
or ASCII bars, and Kimi's, which is like it. Such a reply is no answer, and nothing in it is executed.

The rule, applied to the whole text of a reply without a proper call:

1. An opening token counts where it is neither quoted (behind a quotation mark or backtick) nor inside a code
   fence or inline code.
2. What follows it is a call: a token that begins one, with the name of a tool behind it; or nothing at all,
   where the reply was cut right there.
3. The markup runs to the end: behind the last closing token stands nothing, or more markup. A call that is
   never closed takes the rest with it.

So a text about such markup passes: it is quoted, in code, names no call, or goes on in words.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator

_BAR = "[|\uff5c]"
_JOIN = "[_\u2581 ]"
_TOOL = rf"tool{_JOIN}calls?(?:{_JOIN}section)?{_JOIN}"
_SECTION = rf"<{_BAR}DSML{_BAR}\s?(?:function_calls|tool_calls)\s?>"
_BEGIN = rf"<{_BAR}{_TOOL}begin{_BAR}>"
_SEPARATOR = rf"<{_BAR}tool{_JOIN}(?:sep|call{_JOIN}argument{_JOIN}begin){_BAR}>"
_INVOKE = rf"<{_BAR}DSML{_BAR}\s?invoke\s"
_OPEN = re.compile(rf"{_BEGIN}|{_SECTION}|{_INVOKE}")
_NAMED = re.compile(
    rf"(?:{_BEGIN}\s*+)++[\w.:-]{{0,200}}{_SEPARATOR}\s*+[\w{{]"
    rf"|(?:{_BEGIN}\s*+)++[\w.:-]{{1,200}}\s*+\{{"
    rf"|(?:{_SECTION}\s*)?{_INVOKE}\s*name="
)
_CUT = re.compile(rf"(?:(?:{_BEGIN}|{_SECTION})\s*+)++(?:\w[\w.:-]{{0,200}})?(?:<[^<>\n]{{0,60}}>?)?\s*+\Z")
_CLOSE = re.compile(
    rf"<{_BAR}{_TOOL}end{_BAR}>|</{_BAR}DSML{_BAR}\s?(?:function_calls|tool_calls|invoke|parameter)\s?>"
)
_SPECIAL = re.compile(rf"<{_BAR}(?:end{_JOIN}of{_JOIN}sentence|im_end|eot_id){_BAR}>")
_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}|~{3,})[^\n]*$", re.MULTILINE)
_QUOTES = "\"'`\u201c\u2018\u00ab\u300c(["
_LOOK_BACK_CHARS = 2000
"""How far back in its line inline code is looked for."""


def is_leaked_call(text: str) -> bool:
    """Whether the text of a reply holds a tool call in markup, and not words about one."""
    text = _SPECIAL.sub("", text)
    closings = [found.end() for found in _CLOSE.finditer(text)]
    closed_at = closings[-1] if closings else 0
    rest = text[closed_at:].strip()
    goes_on_in_words = bool(rest) and not rest.startswith("<")
    fences: list[int] | None = None
    for at in _beginnings(text):
        if _NAMED.match(text, at) is not None:
            reaches_the_end = at >= closed_at or not goes_on_in_words
        else:
            reaches_the_end = _CUT.match(text, at) is not None
        if not reaches_the_end or (at and text[at - 1] in _QUOTES):
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
