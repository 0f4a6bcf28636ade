"""Sections for display: nothing that is or may be a secret is shown."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.settings import CREDENTIAL_REF, SECRET, SecretPlace
from dsh.masking import MASK
from dsh.plugins.settings.describe import Redactor
from tests.aio import aio
from tests.plugins.settings_kit import Options, in_memory

Secret = Annotated[str, SECRET]
HUSH = "hush-9"


class Plain(msgspec.Struct, tag="plain"):
    """One of two."""

    token: str = ""
    size: int = 0


class Guarded(msgspec.Struct, tag="guarded"):
    """The other one, with a secret of the same name."""

    token: Secret = ""


class Holder(msgspec.Struct):
    """A secret in every kind of place."""

    direct: Secret = ""
    optional: Secret | None = None
    either: Annotated[str | int, SECRET] = 0
    inside: Guarded = msgspec.field(default_factory=Guarded)
    perhaps: Guarded | None = None
    several: list[Guarded] = []
    named: dict[str, Secret] = {}
    pair: tuple[str, Secret] = ("", "")
    union: Plain | Guarded = msgspec.field(default_factory=Plain)
    anything: Any = None
    ref: Annotated[str, CREDENTIAL_REF] = "A_KEY"
    word: Literal["a", "b"] = "a"
    text: str = ""
    number: float = 1
    switch: bool = True


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"direct": HUSH}, {"direct": MASK}),
        ({"direct": ""}, {"direct": ""}),
        ({"optional": HUSH}, {"optional": MASK}),
        ({"optional": None}, {"optional": None}),
        ({"either": 5}, {"either": MASK}),
        ({"direct": {"deep": HUSH}}, {"direct": MASK}),
        ({"direct": [HUSH]}, {"direct": MASK}),
        ({"inside": {"type": "guarded", "token": HUSH}}, {"inside": {"type": MASK, "token": MASK}}),
        ({"perhaps": {"token": HUSH}}, {"perhaps": {"token": MASK}}),
        ({"perhaps": HUSH}, {"perhaps": MASK}),
        ({"several": [{"token": HUSH}, HUSH]}, {"several": [{"token": MASK}, MASK]}),
        ({"named": {"x": HUSH}}, {"named": {"x": MASK}}),
        ({"pair": ["shown", HUSH, HUSH]}, {"pair": ["shown", MASK, MASK]}),
        ({"union": {"token": HUSH, "size": 3}}, {"union": {"token": MASK, "size": 3}}),
        ({"anything": HUSH}, {"anything": MASK}),
        ({"anything": {"a": [HUSH]}}, {"anything": {"a": MASK}}),
        ({"stranger": HUSH}, {"stranger": MASK}),
        ({"ref": "A_KEY"}, {"ref": "A_KEY"}),
        ({"ref": "sk hush"}, {"ref": MASK}),
        ({"word": "a", "text": "shown", "number": 2, "switch": False},) * 2,
        ({"text": "Bearer abcdefghijkl"}, {"text": f"Bearer {MASK}"}),
        ({"number": HUSH}, {"number": MASK}),
        ([HUSH], MASK),
        (HUSH, MASK),
    ],
)
def test_what_the_schema_hides_or_leaves_open_is_hidden(value: Any, expected: Any) -> None:
    assert Redactor(Holder).hidden(value) == expected


@given(
    value=st.recursive(
        st.just(HUSH) | st.integers() | st.none() | st.booleans(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*Holder.__struct_fields__, "token", "type", "x"]), inner)
        ),
        max_leaves=12,
    )
)
def test_a_secret_is_shown_only_where_the_schema_wants_plain_text(value: Any) -> None:
    hidden = Redactor(Holder).hidden(value)
    if isinstance(hidden, dict):
        for key in ("text", "word"):  # there it is no secret by what the owner says
            hidden.pop(key, None)
        if isinstance(pair := hidden.get("pair"), list):
            pair[:1] = []
    assert HUSH not in str(hidden)


@aio
async def test_a_description_says_layers_revision_schema_and_where_secrets_are() -> None:
    async with in_memory(mine={"key": HUSH, "limits": {"lowMs": 4}}) as at:
        at.service.register("mine", Options, base={"key": "below", "count": 2}, applies="restart")
        [shown] = at.service.describe()
        [bare] = at.service.describe(redact_secrets=False)

    assert (shown.ns, shown.applies, shown.revision) == ("mine", "restart", 0)
    assert shown.value["key"] == shown.user["key"] == shown.base["key"] == MASK
    assert shown.user == {"key": MASK, "limits": {"lowMs": 4}}
    assert shown.base == {"key": MASK, "count": 2}
    assert shown.value["limits"] == {"lowMs": 4, "highMs": 10}
    assert shown.secrets == (SecretPlace(("key",), True),)
    assert "count" in str(shown.schema)
    assert HUSH not in str(shown)
    assert bare.value["key"] == HUSH
    assert bare.secrets == ()


@aio
async def test_a_secret_that_is_not_set_is_said_to_be_none() -> None:
    async with in_memory() as at:
        at.service.register("mine", Options)
        assert at.service.describe()[0].secrets == (SecretPlace(("key",), False),)
