"""Which models a server lists: the shapes of lists, bounds, and what is remembered."""

import json
from typing import Any

import pytest

from dsh.llm.transport.discovery import MAX_MODELS, ServedModel, served_models

LISTS: list[tuple[Any, list[ServedModel]]] = [
    ({"object": "list", "data": [{"id": "gpt-x", "object": "model"}]}, [ServedModel("gpt-x")]),
    ({"data": [{"id": "m", "max_model_len": 4096}]}, [ServedModel("m", None, 4096)]),  # vLLM
    (
        {"data": [{"id": "a/b", "name": "A: B", "context_length": 8192}]},  # OpenRouter
        [ServedModel("a/b", "A: B", 8192)],
    ),
    (
        {"data": [{"id": "m", "max_context_length": 9, "loaded_context_length": 4}]},
        [ServedModel("m", None, 9)],
    ),
    (
        {"models": [{"name": "llama:8b", "model": "llama:8b"}]},  # Ollama's own list
        [ServedModel("llama:8b", "llama:8b")],
    ),
    ([{"id": "m"}, "n"], [ServedModel("m"), ServedModel("n")]),
    ({"data": [{"id": "m"}, {"id": "m", "name": "again"}, {"id": " "}, {}, None, 5]}, [ServedModel("m")]),
    (
        {
            "data": [{"type": "model", "id": "m", "display_name": "M", "max_input_tokens": 200_000}]
        },  # Anthropic
        [ServedModel("m", "M", 200_000)],
    ),
    ({"data": [{"id": "m", "context_length": True, "name": 5}]}, [ServedModel("m")]),
    ({"data": [{"id": "m", "context_length": -1}]}, [ServedModel("m")]),
    ({"data": [{"id": "m", "context_length": 0, "context_window": 7}]}, [ServedModel("m", None, 7)]),
    ({"data": "x", "models": None}, []),
    ({}, []),
    (None, []),
    ("x", []),
]


@pytest.mark.parametrize(("value", "expected"), LISTS)
def test_lists_of_every_shape_are_read_and_the_rest_is_passed_over(
    value: Any, expected: list[ServedModel]
) -> None:
    assert list(served_models(json.loads(json.dumps(value)))) == expected


def test_a_list_without_end_is_cut() -> None:
    assert len(served_models([str(number) for number in range(MAX_MODELS + 10)])) == MAX_MODELS
