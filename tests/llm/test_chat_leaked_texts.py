"""What coding agents write about tool-call markup, which has to pass, and calls that really leaked."""

import pytest

from dsh.llm.chat.leaked import is_leaked_call
from dsh.llm.chat.translator import holds_leaked_call

CALL = '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="bash">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
ARGUMENTS = '{"command": "ls"}'
V31 = (
    f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bash<｜tool▁sep｜>{ARGUMENTS}"
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
V3_BEGINS = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>bash"
KIMI_BEGINS = "<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:0"
INVOKED = '<invoke name="bash">\n<parameter name="command">ls</parameter>\n</invoke>'
QWEN = "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>"
HERMES = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'

WORDS = [
    # prose that names tokens
    "DeepSeek's template opens calls with <｜tool▁calls▁begin｜>, each with <｜tool▁call▁begin｜>.",
    "The order is <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME, then JSON.",
    "Between type and name stands <｜tool▁sep｜>; after the arguments, <｜tool▁call▁end｜>.",
    'Each call is written as <｜DSML｜invoke name="…"> with one parameter element for every argument.',
    "The section tag is <｜DSML｜function_calls> in V3.2, <｜DSML｜tool_calls> in V4.",
    "I renamed the constant for <｜DSML｜tool_calls> and the tests pass.",
    "Some servers double the bars: <｜｜DSML｜｜tool_calls>. The parser now takes both.",
    "Kimi opens with <|tool_calls_section_begin|>, then <|tool_call_begin|> and the id.",
    "Qwen3-Coder wraps <function=NAME> in <tool_call>; without the wrapper vLLM passes it through.",
    "A reply may stop at <tool_call> without a name",
    "The parser looks for <tool_call> and </tool_call>, nothing else.",
    "The tag <function=get_weather> is not closed in the second sample.",
    "Mistral's prefix is [TOOL_CALLS] followed by a JSON list.",
    "The marker [TOOL_CALLS] stays in the text when the tokenizer mode is wrong",
    "gpt-oss writes <|channel|>commentary to name the channel, then the recipient.",
    "Use <function_calls> only in prompts for models that know it.",
    "`<tool_call>` is stripped in `parser.py:41`, so the regression came from there.",
    "It fails on `<｜DSML｜function_calls>`",
    f"The raw reply was `{V31}`",
    f'The server answered "{V31}"',
    f"“{V31}”",
    f"(see {V31.replace('<', '`<', 1)}`)",
    # code and diffs
    f"```python\nSAMPLE = '''\n{CALL}\n'''\n```",
    f"```\n{QWEN}\n```",
    f"~~~xml\n{HERMES}\n~~~",
    f"````markdown\n```\n{V31}\n```\n````",
    "````\n```\n<tool_call>\n<function=bash>\n<parameter=command>\n````",
    f"1. Put this into the prompt:\n\n   ```\n   {V31}\n   ```",
    f"```diff\n-{V31}\n+{CALL}\n```\n",
    f"--- a/sample.txt\n+++ b/sample.txt\n@@ -0,0 +1 @@\n+{V31}",
    f"--- a/sample.txt\n+++ b/sample.txt\n@@ -1 +0,0 @@\n-{QWEN.splitlines()[1]}<parameter=a>",
    "The indented form:\n\n    " + CALL.replace("\n", "\n    "),
    "\t" + QWEN.replace("\n", "\n\t"),
    f"> {V31}",
    "> " + HERMES.replace("\n", "\n> "),
    f"# {V31}",
    f"// {V31}",
    'const OPEN = "<｜DSML｜tool_calls>";',
    "OPEN = '<tool_call>'",
    'if text.startswith("<|tool_calls_section_begin|>"):\n    return parse(text)',
    'assert leaked("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bash<｜tool▁sep｜>{")',
    'printf \'<tool_call>\\n{"name": "bash"}\\n</tool_call>\' | python parse.py',
    're.compile(r"<function=(\\w+)>(.*?)</function>", re.DOTALL)',
    # logs and data that are quoted
    '{"content": "Let me look.\\n\\n<｜DSML｜tool_calls>\\n<｜DSML｜invoke name=\\"bash\\">"}',
    f'{{"content":"{V31}"}}',
    f"2026-09-22 10:21 INFO reply={V31} finish=stop",
    f"The log says:\n\n{CALL}\n\nso I restarted the server with --tool-call-parser deepseek_v4.",
    f"{QWEN}\n\nThis is what the model sent; the parser expects JSON.",
    f"{HERMES} is what it looks like.",
    f"INFO reply=Let me look.\\n{V31}",
    f"<|channel|>commentary to=functions.bash<|message|>{ARGUMENTS}<|call|>\n\nThat is what the server sent.",
    f"Before:\n{V31}\nAfter:\n{CALL}\nBoth are tested.",
    '[TOOL_CALLS] [{"name": "bash", "arguments": {}}]'.join(("`", "`")),
    # tables and lists
    "| model | opens with |\n|---|---|\n| V3 | `<｜tool▁calls▁begin｜>` |\n| V4 | `<｜DSML｜tool_calls>` |",
    "- <｜tool▁calls▁begin｜>\n- <｜tool▁call▁begin｜>\n- <｜tool▁sep｜>",
    "* <tool_call>\n* <function=bash>",
    # Chinese
    "模型会先输出<｜tool▁calls▁begin｜>，再输出每个调用。",
    "格式是<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>函数名，后面是 JSON。",
    "“<｜DSML｜function_calls>”是 V3.2 的标记，V4 改成了「<｜DSML｜tool_calls>」",
    "日志里出现了《<｜DSML｜tool_calls>》这样的标记（<tool_call>",
    f"原始输出：\n{V31}\n可以看到服务端没有解析。",
    f"示例：\n```\n{CALL}\n```",
    "已修复：`<‖DSML‖tool_calls>` 不再出现在正文中。",
    # other angle brackets
    "<function_calls> is an element of the schema; <invoke> its child.",
    "a <| b |> c, x <｜ y, List<function=>",
]

AGAIN = "Let me look at the file first.\n\n"
LEAKS = [
    # DeepSeek V3, V3.1, R1
    V31,
    AGAIN + V31,
    "我先看一下文件。" + V31,
    V31.removesuffix("<｜tool▁calls▁end｜>"),
    V31.replace("<｜tool▁calls▁begin｜>", ""),
    f"{V31}<｜end▁of▁sentence｜>",
    f"{V3_BEGINS}\n```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜>",
    '<|tool▁calls▁begin|><|tool▁call▁begin|>function<|tool▁sep|>bash\n```json\n{"command": "ls"}\n```',
    '<|tool_calls_begin|><|tool_call_begin|>bash<|tool_sep|>{"command": "ls"}<|tool_call_end|>',
    "<｜tool▁calls▁begin｜>" * 31,
    AGAIN + "<｜tool▁calls▁begin｜>",
    AGAIN + V3_BEGINS,
    # V3.2, V4 and its variants
    CALL,
    AGAIN + CALL,
    CALL.replace("tool_calls", "function_calls"),
    CALL.replace("｜", "|"),
    CALL.replace("｜", "‖"),
    CALL.replace("｜", "｜｜"),
    CALL.replace("｜DSML｜", "｜｜DSML｜｜ ").replace("tool_calls", "calls"),
    CALL.replace("<｜DSML｜", "< ｜ DSML ｜ ").replace("</｜DSML｜", "</ ｜ DSML ｜ "),
    CALL.replace("<｜DSML｜tool_calls>\n", "").replace("\n</｜DSML｜tool_calls>", ""),
    AGAIN + '<｜DSML｜invoke name="read">\n<｜DSML｜parameter name="file_path" string="true">a.py',
    f"{CALL}\n{CALL}",
    f"<think>\n</think>\n{CALL}",
    f"Never write `{V31}`.\n\n{CALL}",
    CALL.replace("｜DSML｜", ""),
    # Kimi
    f"{KIMI_BEGINS}<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|>",
    AGAIN + KIMI_BEGINS,
    # Qwen, Hermes, GLM, MiniMax
    QWEN,
    AGAIN + QWEN,
    QWEN.removeprefix("<tool_call>\n"),
    QWEN.removesuffix("\n</tool_call>"),
    f"{QWEN}\n{QWEN}",
    HERMES,
    AGAIN + HERMES,
    HERMES.removesuffix("\n</tool_call>"),
    "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>",
    '<function=bash>{"command": "ls"}</function>',
    f"<minimax:tool_call>\n{INVOKED}\n</minimax:tool_call>",
    f"<function_calls>\n{INVOKED}\n</function_calls>",
    # Mistral, gpt-oss
    '[TOOL_CALLS] [{"name": "bash", "arguments": {"command": "ls"}}]',
    'Let me look.[TOOL_CALLS]bash[ARGS]{"command": "ls"}',
    '<|channel|>commentary to=functions.bash <|constrain|>json<|message|>{"command": "ls"}<|call|>',
]


@pytest.mark.parametrize("text", WORDS)
def test_words_about_calls_are_an_answer(text: str) -> None:
    assert not is_leaked_call(text)


@pytest.mark.parametrize("text", LEAKS)
def test_a_call_in_any_markup_is_a_leak_and_is_looked_for(text: str) -> None:
    assert holds_leaked_call(text)
