"""Tool calls that a model wrote in its own markup and a server passed on as text (`dsh.llm.chat.translator`).

The markup is that of DeepSeek's models (`<｜tool▁calls▁begin｜>`, `<｜DSML｜function_calls>`), with wide
or ASCII bars, and Kimi's, which is like it. Such a reply is no answer, and nothing in it is executed.

The rule, applied to the whole text of a reply without a proper call:

1. An opening token counts where it is neither quoted (behind a quotation mark or backtick) nor inside a code
   fence or inline code.
2. What follows it is a call: a token that begins one, with the name of a tool behind it; or nothing at all,
   where the reply was cut right there.
3. The markup runs to the end: behind the last closing token stands white space alone. A call that is never
   closed takes the rest with it.

So a text about such markup passes: it is quoted, in code, names no call, or goes on in words.
"""

import re

_BAR = "[|\uff5c]"
_JOIN = "[_\u2581 ]"
_TOOL = rf"tool{_JOIN}calls?(?:{_JOIN}section)?{_JOIN}"
_OPEN = re.compile(
    rf"<{_BAR}{_TOOL}begin{_BAR}>|<{_BAR}DSML{_BAR}\s*(?:function_calls|tool_calls|invoke)\b[^<>]{{0,200}}>"
)
_CALL = re.compile(
    rf"\s*(?:<{_BAR}{_TOOL}begin{_BAR}>\s*)*[\w.:-]*\s*<{_BAR}tool{_JOIN}(?:sep|call{_JOIN}argument{_JOIN}begin){_BAR}>\s*\S"
    rf"|\s*(?:<{_BAR}DSML{_BAR}\s*(?:function_calls|tool_calls)\s*>\s*)?<{_BAR}DSML{_BAR}\s*invoke\s+name="
    rf"|(?:<{_BAR}{_TOOL}begin{_BAR}>\s*)+[\w.-]+\s*(?=\{{)"
)
_CLOSE = re.compile(
    rf"<{_BAR}{_TOOL}end{_BAR}>|</{_BAR}DSML{_BAR}\s*(?:function_calls|tool_calls|invoke|parameter)\s*>"
)
_SPECIAL = re.compile(rf"<{_BAR}(?:end{_JOIN}of{_JOIN}sentence|im_end|eot_id){_BAR}>")
_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}|~{3,})[^\n]*$", re.MULTILINE)
_QUOTES = "\"'`\u201c\u2018\u00ab\u300c(["


def is_leaked_call(text: str) -> bool:
    """Whether the text of a reply holds a tool call in markup, and not words about one."""
    for opening in _OPEN.finditer(text):
        at = opening.start()
        if (at and text[at - 1] in _QUOTES) or _in_code(text[:at]):
            continue
        rest = _SPECIAL.sub("", text[opening.end() :])
        if not rest.strip() or (_CALL.match(text, at) is not None and _runs_to_the_end(text[at:])):
            return True
    return False


def _runs_to_the_end(markup: str) -> bool:
    ends = [closing.end() for closing in _CLOSE.finditer(markup)]
    rest = _SPECIAL.sub("", markup[ends[-1] :]) if ends else ""
    return not rest.strip() or _OPEN.search(rest) is not None


def _in_code(before: str) -> bool:
    """Whether what comes next stands inside a code fence or inline code."""
    fence = ""
    for line in _FENCE.finditer(before):
        mark = line[1]
        if not fence:
            fence = mark
        elif mark[0] == fence[0] and len(mark) >= len(fence):
            fence = ""
    last_line = before.rpartition("\n")[2]
    return bool(fence) or last_line.count("`") % 2 == 1
