"""Tool calls that arrive as text: which replies are such leaks, and which only speak of the markup."""

import pytest

from dsh.llm.chat.leaked import is_leaked_call
from dsh.llm.chat.translator import ReplyRules
from dsh.session.chunk import BlockEnd, UsageChunk
from tests.llm.build import calls, delta, fragment, reason, translate

V3 = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read\n"
    '```json\n{"file_path": "a"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
V31 = (
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>{"file_path": "a"}'
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
DSML = (
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="read">\n'
    '<｜DSML｜parameter name="file_path" string="true">a</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>"
)
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0"
    '<|tool_call_argument_begin|>{"file_path": "a"}<|tool_call_end|><|tool_calls_section_end|>'
)
ASCII = [text.replace("｜", "|").replace("▁", joint) for text in (V3, V31, DSML) for joint in ("_", "▁", " ")]
WHOLE = [V3, V31, DSML, DSML.replace("function_calls", "tool_calls"), KIMI, *ASCII]


@pytest.mark.parametrize("leak", WHOLE)
@pytest.mark.parametrize("before", ["", "Let me look.", "Let me look:\n\n", "It's `a`. ", "```\nx\n```\n"])
@pytest.mark.parametrize("after", ["", "\n \n", "<｜end▁of▁sentence｜>"])
def test_a_call_in_markup_is_a_leak_wherever_the_reply_goes_over_to_it(
    leak: str, before: str, after: str
) -> None:
    assert is_leaked_call(before + leak + after)


@pytest.mark.parametrize("leak", [V31, DSML, KIMI])
def test_a_call_that_was_cut_off_is_a_leak_from_its_name_on(leak: str) -> None:
    opened = leak.index(">") + 1
    for end in range(opened, len(leak)):
        assert is_leaked_call("Let me look." + leak[:end]), leak[:end]


@pytest.mark.parametrize(
    "token", ["<｜tool▁calls▁begin｜>", "<｜DSML｜function_calls>", "<|tool_calls_begin|>"]
)
def test_a_reply_that_stops_at_the_opening_token_is_a_leak(token: str) -> None:
    assert is_leaked_call(token)
    assert is_leaked_call(f"Let me look.{token}\n")


def test_several_leaked_calls_are_a_leak_and_so_is_the_second_after_a_quoted_one() -> None:
    assert is_leaked_call(f"{DSML}\n{DSML}")
    assert is_leaked_call(f"Never write `<｜tool▁calls▁begin｜>`. {V31}")


@pytest.mark.parametrize("markup", WHOLE)
@pytest.mark.parametrize(
    "around",
    [
        "````\n```\n{}\n````",
        "~~~\n```\n{}\n~~~",
        "In code:\n```\n{}\n```",
        "~~~xml\n{}\n~~~\nis how it looks.",
        'It says "{}" there.',
        "“{}” is it",
    ],
)
def test_markup_in_code_or_in_quotation_marks_is_no_leak(markup: str, around: str) -> None:
    assert not is_leaked_call(around.replace("{}", markup))


@pytest.mark.parametrize(
    "text",
    [
        "DeepSeek writes <｜tool▁calls▁begin｜> before its calls.",
        "The tokens are <｜tool▁calls▁begin｜>, <｜tool▁call▁begin｜> and <｜tool▁sep｜>.",
        'Inline `<｜DSML｜function_calls>` and `<｜DSML｜invoke name="read">` are tags.',
        f"Here is one:\n{DSML}\nand this is what it means.",
        f"{V31}\n\nThat is the format of version 3.1.",
        "a <| b and <｜ c",
        "<|im_start|>assistant",
        "",
    ],
)
def test_words_about_markup_are_no_leak(text: str) -> None:
    assert not is_leaked_call(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<｜tool▁calls▁begin｜> and so on. " * 20_000, False),
        (f"{V31} and so on. " * 5_000, False),
        ("<｜tool▁calls▁begin｜>" * 50_000, True),
        ("<｜tool▁calls▁begin｜>\n" * 50_000 + "and so on.", False),
        ("<｜tool▁calls▁begin｜>" + " \n" * 500_000 + "and so on.", False),
        ("```\n" + "<｜tool▁call▁begin｜>f<｜tool▁sep｜>x " * 20_000 + "\n```", False),
        ("```\n" + "<｜tool▁call▁begin｜>f<｜tool▁sep｜>x\n" * 20_000 + "```\n.", False),
        ("<|" * 500_000, False),
        ("`" * 500_000 + "<｜tool▁calls▁begin｜>", False),
    ],
    ids=lambda value: str(value)[:30],
)
def test_long_texts_are_judged_in_one_pass(text: str, expected: bool) -> None:
    assert is_leaked_call(text) is expected


# -- on the wire -------------------------------------------------------------------------------------


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "length", None])
@pytest.mark.parametrize("member", ["content", "reasoning_content", "reasoning"])
def test_a_reply_that_is_a_leak_fails_the_attempt(finish: str | None, member: str) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    chunks = translate(delta(**{member: V31[:30]}), delta(finish, usage, **{member: V31[30:]}))

    failure = reason(chunks)["failure"]
    assert failure["code"] == "MALFORMED_RESPONSE"
    assert "wrote a tool call as text" in failure["message"]
    assert isinstance(chunks[-2], UsageChunk)  # the attempt is paid for
    assert not any(isinstance(chunk, BlockEnd) for chunk in chunks)


def test_a_reply_that_the_provider_stopped_is_that_and_no_leak() -> None:
    assert reason(translate(delta("content_filter", content=V31)))["failure"]["code"] == "CONTENT_FILTER"


def test_a_leak_in_reasoning_that_an_answer_follows_is_thought_and_no_more() -> None:
    chunks = translate(delta(reasoning_content=V31), delta("stop", content="done"))

    assert reason(chunks) == {"kind": "stop"}


def test_beside_a_proper_call_markup_is_text_for_the_turn_goes_on() -> None:
    chunks = translate(
        delta(content=DSML), calls(fragment("{}", name="read", id="c1", index=0)), delta("tool_calls")
    )

    assert reason(chunks) == {"kind": "tool-calls"}


def test_a_route_may_take_such_replies_as_they_are() -> None:
    rules = ReplyRules(detect_leaked_calls=False)

    assert reason(translate(delta("stop", content=V31), rules=rules)) == {"kind": "stop"}


def test_a_leak_in_reasoning_beside_blank_text_is_all_that_the_reply_says() -> None:
    chunks = translate(delta(reasoning_content=V31), delta("stop", content=" \n"))

    assert reason(chunks)["failure"]["code"] == "MALFORMED_RESPONSE"
