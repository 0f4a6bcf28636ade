"""Fields marked secret, wherever in a schema, and what is said of a value that does not fit."""

from dataclasses import dataclass
from typing import Annotated, Any, Union

import msgspec
import pytest

from dsh.kernel import ValidationError, resolve_config
from dsh.kernel.secret import kinds_of, told_without, without_secrets

SECRET = msgspec.Meta(extra={"role": "secret"})
Key = Annotated[str, msgspec.Meta(min_length=2), SECRET]


class Account(msgspec.Struct, rename="camel"):
    user: str = ""
    pass_word: Key | None = None


class Basic(msgspec.Struct, tag="basic"):
    word: Key


class Plain(msgspec.Struct, tag="plain"):
    word: str


@dataclass
class Foreign:
    key: Key


class Box(msgspec.Struct):
    account: Account | None = None
    accounts: list[Account] = []
    named: dict[str, Account] = {}
    keys: dict[str, Key] = {}
    listed: list[Key] = []
    deep: list[list[Account]] = []
    pair: tuple[str, Key] = ("", "")
    whole: Annotated[dict[str, str], SECRET] = {}
    number: Annotated[int, SECRET] = 0
    either: Union[Basic, Plain, None] = None  # noqa: UP007 -- the other spelling
    foreign: Foreign | None = None


ACCOUNT = {"user": "me", "passWord": "hunter2"}
SHOWN = {"user": "me", "passWord": "***"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"account": ACCOUNT}, {"account": SHOWN}),
        ({"accounts": [ACCOUNT, ACCOUNT]}, {"accounts": [SHOWN, SHOWN]}),
        ({"named": {"a": ACCOUNT}}, {"named": {"a": SHOWN}}),
        ({"keys": {"a": "hunter2"}}, {"keys": {"a": "***"}}),
        ({"listed": ["hunter2", ""]}, {"listed": ["***", ""]}),
        ({"deep": [[ACCOUNT]]}, {"deep": [[SHOWN]]}),
        ({"pair": ["me", "hunter2"]}, {"pair": ["me", "***"]}),
        ({"whole": {"a": "hunter2"}}, {"whole": "***"}),
        ({"number": 1234}, {"number": "***"}),
        ({"either": {"type": "basic", "word": "hunter2"}}, {"either": {"type": "basic", "word": "***"}}),
        ({"foreign": {"key": "hunter2"}}, {"foreign": {"key": "***"}}),
        ({"account": {"passWord": None}}, {"account": {"passWord": None}}),
    ],
)
def test_a_mark_counts_wherever_it_stands(value: Any, shown: Any) -> None:
    assert without_secrets(value, kinds_of(Box)) == shown


class Lost(msgspec.Struct):
    key: "NobodyKnowsThis"  # type: ignore[name-defined] # noqa: F821


def test_types_that_cannot_be_told_count_as_secret() -> None:
    assert without_secrets({"key": "hunter2"}, kinds_of(Lost)) == {"key": "***"}


class Judge(msgspec.Struct):
    key: Key = ""
    keys: dict[str, Key] = {}
    limit: int = 0

    def __post_init__(self) -> None:
        if self.key:
            raise ValueError(f"expected 20 letters but got {self.key!r} (limit {self.limit})")
        for key in self.keys.values():
            raise ValueError(f"bad key {key}")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"key": "hunter2", "limit": 5}, "expected 20 letters but got '***' (limit 5)"),
        ({"key": "two\nlines"}, "expected 20 letters but got '***' (limit 0)"),
        ({"key": "at"}, "expected 20 letters but got '***' (limit 0)"),
        ({"keys": {"a": "hunter2"}}, "bad key ***"),
    ],
)
def test_what_a_schema_says_of_a_marked_value_is_told_without_it(raw: Any, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        resolve_config(Judge, raw)
    assert caught.value.problem == said


class Inner(msgspec.Struct):
    inner: Judge


def test_so_it_is_in_a_struct_inside_another() -> None:
    with pytest.raises(ValidationError) as caught:
        resolve_config(Inner, {"inner": {"key": "hunter2"}})
    assert "hunter2" not in str(caught.value)
    assert caught.value.path == "inner"


def test_a_marked_number_is_taken_out_too() -> None:
    assert told_without("expected 0 but got 1234", {"number": 1234}, Box) == "expected 0 but got ***"
