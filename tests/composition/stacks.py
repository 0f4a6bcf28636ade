"""Random stacks of layers, as hypothesis strategies: rows, groups and every kind of patch."""

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from dsh.composition.patch import Layer, apply_layers
from dsh.composition.row import Row
from dsh.errors import CompositionError
from tests.composition.layers import layer

PLUGIN = "./p.py"
"""The name of every row that is no group."""
IDS = st.sampled_from(["a", "b", "c", "d", "g", "h"])
SCALARS = st.sampled_from([None, True, False, 0, 1, 1.5, "", "x", "no", "a\nb", "!x"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("klm"), inner, max_size=3),
    max_leaves=6,
)
CONFIGS = st.dictionaries(st.sampled_from("klm"), VALUES, max_size=3)
LEAVES = st.fixed_dictionaries(
    {"id": IDS, "name": st.just(PLUGIN)},
    optional={"config": CONFIGS, "disabled": st.sampled_from([True, False, None])},
)
GROUPS = st.fixed_dictionaries(
    {
        "id": IDS,
        "name": st.just("cordis:group"),
        "group": st.just(True),
        "config": st.lists(LEAVES, max_size=2),
    },
    optional={"disabled": st.booleans()},
)
INSERTED = st.lists(LEAVES | GROUPS, max_size=2)
ELEMENTS = st.one_of(
    st.fixed_dictionaries({"insert": INSERTED}, optional={"before": IDS}),
    st.fixed_dictionaries({"insert": INSERTED}, optional={"after": IDS}),
    st.fixed_dictionaries({"id": IDS, "insert": INSERTED}),
    st.fixed_dictionaries({"id": IDS, "config": CONFIGS}),
    st.fixed_dictionaries({"id": IDS, "merge": CONFIGS}),
    st.fixed_dictionaries({"id": IDS, "remove": st.just(True)}),
    st.fixed_dictionaries(
        {"id": IDS}, optional={"disabled": st.booleans(), "name": st.sampled_from([PLUGIN, "other"])}
    ),
)
STACKS = st.lists(st.lists(ELEMENTS, max_size=4), min_size=1, max_size=4)


def stack_of(written: list[list[dict[str, Any]]], folder: Path | None = None) -> list[Layer]:
    """The layers `layer0`, … (in `folder`); without one each row says in `inject` which brought it."""
    if folder is not None:
        return [layer(str(folder / f"layer{n}"), json.dumps(elements)) for n, elements in enumerate(written)]
    marked = copy.deepcopy(written)
    number = 0
    for n, elements in enumerate(marked):
        for element in elements:
            for row in element.get("insert", []):
                for inner in (row, *(row["config"] if row["name"] == "cordis:group" else ())):
                    inner["inject"] = [f"layer{n}", str(number := number + 1)]
    return [layer(f"layer{n}", json.dumps(elements)) for n, elements in enumerate(marked)]


def applied(layers: list[Layer]) -> list[Row]:
    """The rows, where the stack is one that can be composed at all."""
    try:
        return apply_layers(layers)[0]
    except CompositionError as error:
        assume("duplicate loader entry id" not in str(error) and "must be a list of rows" not in str(error))
        raise
