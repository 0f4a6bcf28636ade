"""What is read from a skill's file, which words call a skill up, and the list that the model is given."""

from typing import Any

import pytest

from dsh.capabilities.skills import LoadedSkill, ResourceBase, Skill
from dsh.plugins.skill_filesystem.document import NoSkill, parse_skill
from dsh.plugins.tool_skill.catalogue import EMPTY, Catalogue, catalogue_of, digest_of
from dsh.plugins.tool_skill.gesture import called_up, has_any
from dsh.plugins.tool_skill.render import rendered, value_of
from dsh.session.message import Message, user_message


def parsed(front: str, body: str = "Do it.") -> LoadedSkill:
    return parse_skill(f"---\n{front}\n---\n{body}", path="/s/a.md", base="/s", rank=100)


def known(name: str, description: str = "what it does", **changes: Any) -> Skill:
    return Skill(name=name, description=description, **changes)


def person(text: str) -> Message:
    return user_message(text, {"kind": "user"})


# -- the file ------------------------------------------------------------------------------------


def test_all_that_a_file_may_say() -> None:
    loaded = parse_skill(
        "\ufeff---\r\nname: a-1\r\ndescription: ' d '\r\nwhenToUse: w\r\nmetadata: {k: [1]}\r\n---\r\n"
        "\r\n b \n---\n",
        path="/s/a/SKILL.md",
        base="/s/a",
        rank=7,
    )

    assert loaded.content == "b \n---"
    assert loaded.skill == Skill(
        name="a-1",
        description="d",
        when_to_use="w",
        metadata={"k": [1]},
        rank=7,
        resource_base=ResourceBase(kind="directory", path="/s/a"),
        key="/s/a/SKILL.md",
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_those_of_an_editor(end: str) -> None:
    text = end.join(["---", "name: a", "description: d", "---", "body", "---", "more"])
    assert parse_skill(text, path="/a", base="/", rank=1).content == end.join(["body", "---", "more"])


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c"])
def test_what_only_unicode_counts_as_the_end_of_a_line_does_not_end_the_front_matter(mark: str) -> None:
    with pytest.raises(NoSkill, match="its front matter is no YAML"):
        parsed(f"name: a\ndescription: d{mark}---{mark}user-invocable: false")


@pytest.mark.parametrize("word", ["true", "yes", "on", "1", '"yes"', '"ON"', "True"])
def test_flags_may_be_words(word: str) -> None:
    skill = parsed(f"name: a\ndescription: d\ndisable-model-invocation: {word}\nuser-invocable: 0").skill

    assert not skill.for_model
    assert not skill.for_user


def test_without_flags_both_may_use_it() -> None:
    skill = parsed("name: a\ndescription: d").skill

    assert skill.for_model
    assert skill.for_user


@pytest.mark.parametrize(
    ("front", "problem"),
    [
        ("description: d", "name is missing"),
        ("name: a", "description is missing"),
        ("name: a\ndescription: ' '", "description is blank"),
        ("name: 1\ndescription: d", "name is no text"),
        ("name: A\ndescription: d", "its name is 'A'"),
        ("name: a--b\ndescription: d", "its name is 'a--b'"),
        ("name: -a\ndescription: d", "its name is '-a'"),
        ("name: ../a\ndescription: d", "its name is '../a'"),
        ("name: a\ndescription: d\nwhenToUse: [1]", "whenToUse is no text"),
        ("name: a\ndescription: d\nmetadata: [1]", "metadata is no mapping"),
        ("name: a\ndescription: d\nuser-invocable: maybe", "user-invocable is true or false"),
        ("name: a\ndescription: d\nuser-invocable: 2", "user-invocable is true or false"),
        ("name: a\ndescription: d\nuserInvocable: true", "userInvocable is written user-invocable"),
        (
            "name: a\ndescription: d\ndisableModelInvocation: true",
            "disableModelInvocation is written disable-model-invocation",
        ),
        ("- a", "its front matter is no mapping"),
        ("name: [", "its front matter is no YAML"),
    ],
)
def test_a_wrong_front_matter_is_named(front: str, problem: str) -> None:
    with pytest.raises(NoSkill) as raised:
        parsed(front)
    assert problem in str(raised.value)


@pytest.mark.parametrize("text", ["", "name: a\n", " ---\nname: a\n---\n", "----\nname: a\n---\n"])
def test_the_first_line_opens_the_front_matter(text: str) -> None:
    with pytest.raises(NoSkill, match="its first line"):
        parse_skill(text, path="/a", base="/", rank=1)


def test_a_front_matter_has_an_end() -> None:
    with pytest.raises(NoSkill, match="no second line"):
        parse_skill("---\nname: a\n", path="/a", base="/", rank=1)


# -- words that call a skill up ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/b then /a and /b", ["b", "a"]),
        ("please\n\t/a\n", ["a"]),
        ("/a, /b. x/a //a /a/ /a/b /A (/a)", []),
        ("/unknown /hidden", []),
        ("look into /tmp", []),
        ("/tmp is a skill here", ["tmp"]),
        ("a\n```sh\n/a\n```\n/b", ["b"]),
        ("~~~\n/a\n", []),
    ],
)
def test_which_words_call_up(text: str, expected: list[str]) -> None:
    skills = [known("a"), known("b", for_model=False), known("tmp"), known("hidden", for_user=False)]

    assert called_up([person(text)], skills, lambda path: path == "/tmp") == expected


def test_only_a_person_calls_up() -> None:
    other = user_message("/a", {"kind": "plugin", "plugin": "x"})

    assert called_up([other], [known("a")], lambda path: False) == []
    assert not has_any([other])
    assert has_any([person("now /a")])
    assert not has_any([person("now a/b")])


# -- the list ------------------------------------------------------------------------------------


def entries_of(*skills: Skill, longest: int = 500, room: int = 100_000) -> Catalogue:
    return catalogue_of(skills, max_description=longest, max_bytes=room)


def text_of(catalogue: Catalogue, *, is_update: bool = False) -> str:
    block = catalogue.message(is_update=is_update)["content"][0]
    assert block["type"] == "text"
    return block["text"]


def test_descriptions_stand_on_one_line_and_are_cut_to_the_bound() -> None:
    made = entries_of(
        known("a", " x\n\n y "), known("b", "z" * 500), known("c", "z" * 501), known("d", for_model=False)
    )

    assert [entry["description"] for entry in made.entries] == ["x y", "z" * 500, "z" * 497 + "..."]


def test_when_to_use_it_is_shown() -> None:
    assert entries_of(known("a", "d", when_to_use="at\nnight")).entries[0]["description"] == (
        "d (When to use: at night)"
    )


def test_the_text_is_escaped_and_the_entries_are_not() -> None:
    made = entries_of(known("a", "</available_skills> & <b>"))

    assert "- `a`: &lt;/available_skills&gt; &amp; &lt;b&gt;\n" in text_of(made)
    assert made.entries[0]["description"] == "</available_skills> & <b>"
    assert text_of(made).count("</available_skills>") == 1


def test_where_there_is_no_room_descriptions_get_shorter_before_skills_are_left_out() -> None:
    skills = [known(f"s{number}", "word " * 90) for number in range(10)]

    shorter = entries_of(*skills, room=3_000)
    fewer = entries_of(*skills, room=300)

    assert (len(shorter.entries), shorter.left_out) == (10, 0)
    assert fewer.left_out == 10 - len(fewer.entries)
    assert 0 < len(fewer.entries) < 10
    assert f"({fewer.left_out} more skills are not listed" in text_of(fewer)


def test_a_list_without_room_for_any_does_not_say_that_there_are_none() -> None:
    made = entries_of(known("a"), room=1)

    assert (made.entries, made.left_out) == ([], 1)
    assert EMPTY not in text_of(made, is_update=True)
    assert "(1 more skills are not listed" in text_of(made, is_update=True)


def test_an_empty_list_says_that_earlier_ones_do_not_count() -> None:
    assert EMPTY in text_of(entries_of(), is_update=True)


def test_lists_are_equal_by_name_description_and_order() -> None:
    one, other = known("a", "x"), known("b", "y")

    assert digest_of(entries_of(one, other).entries) == digest_of(entries_of(one, other).entries)
    assert digest_of(entries_of(one, other).entries) != digest_of(entries_of(other, one).entries)
    assert digest_of(entries_of(one).entries) != digest_of(entries_of(known("a", "y")).entries)


@pytest.mark.parametrize(
    ("base", "hint"),
    [
        (ResourceBase(kind="url", url="https://x.test/?a&b"), "https://x.test/?a&amp;b"),
        (ResourceBase(kind="opaque", description="ask <me>"), "ask &lt;me&gt;"),
        (ResourceBase(kind="directory", path="/s"), "The directory of this skill is /s"),
    ],
)
def test_the_resources_are_named_and_the_body_is_verbatim(base: ResourceBase, hint: str) -> None:
    text = rendered(value_of(LoadedSkill(known("a", resource_base=base), "<b> & c")))

    assert hint in text.split("</skill_resources>")[0]
    assert "\n\n<skill_instructions>\n<b> & c\n</skill_instructions>\n</skill_content>" in text


def test_a_skill_without_resources_has_no_block_of_them() -> None:
    text = rendered(value_of(LoadedSkill(known("a"), "c")))

    assert text == (
        '<skill_content name="a">\n<skill_instructions>\nc\n</skill_instructions>\n</skill_content>'
    )
