"""Error bodies in the manner of providers, routers, local servers and gateways: code, wait, message, id.

`tests/data/provider_errors.json` holds them. They were written after public documentation, source and
reports of users, and shortened; none was recorded from a live service, and not each was checked word by word.
They prove that each shape and wording is understood, not that a provider still answers so. Status null stands
for an error within the stream, 200 for one in place of it.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from dsh.llm.failure import LlmFailure
from dsh.llm.transport.classify import classify_error_object, classify_status

CORPUS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "provider_errors.json").read_text("utf-8")
)
NOW_S = 1_800_000_000.0
"""2027-01-15T08:00:00Z"""


def classified(case: dict[str, Any]) -> LlmFailure:
    body, headers = case["body"], case.get("headers", {})
    if case["status"] in (None, 200):
        value = body["error"] if case["status"] == 200 else body
        return classify_error_object(value, provider="TestAI", headers=headers, now_s=NOW_S)
    raw = body if isinstance(body, str) else json.dumps(body)
    return classify_status(
        case["status"], raw.encode(), headers, provider="TestAI", host="http://host/v1", now_s=NOW_S
    )


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: str(case["from"]))
def test_what_providers_say_is_understood(case: dict[str, Any]) -> None:
    failure = classified(case)

    assert failure.code == case["code"]
    assert failure.provider_retry_after_ms == case.get("waitMs")
    assert failure.request_id == case.get("requestId")
    assert failure.message == case.get("message", failure.message)
    assert case.get("hidden", "\0") not in failure.message
    assert "\n" not in failure.message and not failure.message.startswith("<h")


def test_cases_are_named_once() -> None:
    names = [case["from"] for case in CORPUS]
    assert len(set(names)) == len(names) > 100
