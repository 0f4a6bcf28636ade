"""What routes of every wire refuse, and that they refuse it without telling a key."""

import pytest

from dsh.llm.route.config import check_headers
from dsh.llm.transport.credential import is_key_name
from dsh.llm.transport.endpoint import Endpoint
from dsh.llm.transport.watchdog import StreamLimits


@pytest.mark.parametrize(
    "name", ["KEY", "_k1", "OPENAI_API_KEY", "my_key", "hf_token", "AKIA0123456789ABCDEF"]
)
def test_a_variable_names_a_key(name: str) -> None:
    assert is_key_name(name)


@pytest.mark.parametrize(
    "key", ["", "1A", "A B", "sk-abc123def456", "gsk_0123456789abcdefABCDEF", "sk_live_0123456789abc", "K\n"]
)
def test_a_key_in_the_place_of_its_name_is_refused(key: str) -> None:
    assert not is_key_name(key)


@pytest.mark.parametrize("name", ["", "x bad pa55", "authorization: pa55", "x\npa55", "ü-pa55"])
def test_what_can_be_no_header_is_not_told(name: str) -> None:
    with pytest.raises(ValueError, match="a name that no header can have") as caught:
        check_headers({name: "pa55"})
    assert "pa55" not in str(caught.value)


@pytest.mark.parametrize("value", ["pa55\n", "pa55é", "pa\x0055"])
def test_a_value_that_cannot_stand_in_a_header_is_not_told(value: str) -> None:
    with pytest.raises(ValueError, match="the value of x-gate cannot stand") as caught:
        check_headers({"x-fine": "1", "x-gate": value})
    assert "55" not in str(caught.value)


@pytest.mark.parametrize("name", ["Authorization", "HOST", "content-Length", "user-agent"])
def test_a_header_of_ours_cannot_be_set(name: str) -> None:
    with pytest.raises(ValueError, match=f"cannot hold {name.lower()}; a key is named by apiKeyEnv"):
        check_headers({name: "x"})


def test_the_secrets_of_an_endpoint_are_its_key_and_the_headers_that_say_so() -> None:
    endpoint = Endpoint(
        url="http://h",
        headers={
            "authorization": "Bearer odd~key~1",
            "cf-access-client-secret": "geheim",
            "x-litellm-key": "k2",
            "anthropic-beta": "a-beta",
        },
        provider="TestAI",
        shown_url="http://h",
        secret="odd~key~1",
        limits=StreamLimits(),
        key_origin="",
    )

    assert endpoint.secrets == ("Bearer odd~key~1", "odd~key~1", "geheim", "k2")
    assert "geheim" not in repr(endpoint) and "odd" not in repr(endpoint)
