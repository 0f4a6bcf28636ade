"""Options of `compaction-basic`: which go together, and what holds for one model."""

from typing import Any

import pytest

from dsh.kernel.schema import ValidationError, resolve_config
from dsh.plugins.compaction_basic.config import Config


def config(**options: Any) -> Config:
    return resolve_config(Config, options)


def test_the_defaults_keep_a_sixth_of_what_starts_it() -> None:
    policy = config().for_model("p", "m")

    assert (policy.threshold(128_000), policy.retained(128_000)) == (102_400, 20_480)
    assert (policy.max_tokens, policy.compaction_retries, policy.max_overflow_retries) == (8192, 1, 1)


def test_tokens_take_the_place_of_the_ratio() -> None:
    assert config(retainTokens=500).for_model("p", "m").retained(10_000) == 500


def test_a_model_has_options_of_its_own_and_the_rows_for_the_rest() -> None:
    own = {"provider": "p", "model": "m", "thresholdRatio": 0.5, "retainTokens": 7, "maxTokens": 9}
    made = config(thresholdRatio=0.9, compactionRetries=3, modelPolicies=[own])

    policy, other = made.for_model("p", "m"), made.for_model("p", "other")
    assert (policy.threshold(100), policy.retained(100), policy.max_tokens) == (50, 7, 9)
    assert policy.compaction_retries == other.compaction_retries == 3
    assert (other.threshold(100), other.retained(100)) == (90, 16)


def test_a_ratio_of_a_model_beats_the_tokens_of_the_row() -> None:
    own = {"provider": "p", "model": "m", "retainRatio": 0.1}
    assert config(retainTokens=500, modelPolicies=[own]).for_model("p", "m").retained(100) == 10


def test_an_empty_pair_of_a_model_is_the_working_model_again() -> None:
    own = {"provider": "p", "model": "m", "summarizationProvider": "", "summarizationModel": ""}
    made = config(summarizationProvider="s", summarizationModel="n", modelPolicies=[own])

    assert (made.for_model("p", "m").provider, made.for_model("p", "x").provider) == ("", "s")


POLICY = {"provider": "p", "model": "m"}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"thresholdRatio": 0}, "thresholdRatio"),
    ({"thresholdRatio": 1.1}, "thresholdRatio"),
    ({"retainRatio": 0.8}, "retainRatio 0.8 is not below"),
    ({"retainRatio": 0.3, "retainTokens": 5}, "exclude each other"),
    ({"retainTokens": 0}, "retainTokens"),
    ({"summarizationProvider": "p"}, "together or not at all"),
    ({"summarizationModel": "m"}, "together or not at all"),
    ({"maxTokens": 0}, "maxTokens"),
    ({"compactionRetries": -1}, "compactionRetries"),
    ({"modelPolicies": [POLICY, POLICY]}, "p/m twice"),
    ({"modelPolicies": [{**POLICY, "retainRatio": 0.1, "retainTokens": 5}]}, "p/m: retainRatio and"),
    ({"modelPolicies": [{**POLICY, "thresholdRatio": 0.1}]}, "p/m: retainRatio 0.16 is not below"),
    ({"modelPolicies": [{"provider": "p"}]}, "model"),
    ({"modelPolicies": [{**POLICY, "auto": False}]}, "auto"),
]


@pytest.mark.parametrize(("options", "said"), WRONG, ids=[said for _, said in WRONG])
def test_options_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        config(**options)
