"""Registrations in layers: shadowing, exact undos, identity of keys, and nothing left behind."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.errors import KernelError
from dsh.kernel.layer import Contributions, Layers
from dsh.kernel.scope import ScopeTarget, bind_parent, chain


class Key:
    """Compares equal to all others of its kind: identity alone tells them apart."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key)

    def __hash__(self) -> int:
        return 1


def taken(name: str) -> Exception:
    return KernelError(f"{name} is taken")


def test_the_nearest_layer_wins_and_a_name_is_free_once_in_each() -> None:
    layers: Layers[str] = Layers(taken)
    parent, child, other = Key(), Key(), Key()
    bind_parent(child, parent)
    layers.insert(None, "a", "global")
    layers.insert(parent, "a", "parent")
    undo = layers.insert(child, "a", "child")
    layers.insert(None, "b", "global b")

    assert layers.view(child) == {"a": "child", "b": "global b"}
    assert layers.view(other) == {"a": "global", "b": "global b"}
    with pytest.raises(KernelError, match="a is taken"):
        layers.insert(child, "a", "again")
    undo()
    assert layers.find("a", child) == "parent"
    assert layers.find("nothing", child) is None


def test_who_tied_a_key_may_tie_it_elsewhere_and_what_it_sees_and_who_hears_of_it_follow() -> None:
    layers: Layers[str] = Layers(taken)
    one, two, child = Key(), Key(), Key()
    layers.insert(one, "a", "one")
    layers.insert(two, "a", "two")
    link = bind_parent(child, one)
    target = ScopeTarget(child)
    assert (layers.find("a", child), target.admits(Tagged(one)), target.admits(Tagged(two))) == (
        "one",
        True,
        False,
    )

    link.relink(two)

    assert (layers.find("a", child), target.admits(Tagged(one)), target.admits(Tagged(two))) == (
        "two",
        False,
        True,
    )
    with pytest.raises(KernelError, match="its own ancestor"):
        link.relink(child)


class Tagged:
    """Where a listener of a scope was registered."""

    def __init__(self, scope: object) -> None:
        self.scope = scope

    def realm_of(self, name: str) -> Any:
        raise AssertionError(name)


def test_an_undo_takes_out_its_own_entry_once() -> None:
    layers: Layers[str] = Layers(taken)
    key = Key()
    undo = layers.insert(key, "a", "first")
    undo()
    layers.insert(key, "a", "second")

    undo()

    assert layers.view(key) == {"a": "second"}


def test_contributions_all_count_from_the_outside_in_and_equal_ones_are_told_apart() -> None:
    pile: Contributions[Key | str] = Contributions()
    parent, child = Key(), Key()
    bind_parent(child, parent)
    one, two = Key(), Key()
    pile.add(child, "near")
    pile.add(None, one)
    undo = pile.add(None, two)
    pile.add(parent, "far")

    undo()
    undo()

    assert len(pile.view(child)) == 3
    assert pile.view(child)[0] is one
    assert pile.view(child)[1:] == ["far", "near"]
    assert pile.view(parent)[1:] == ["far"]


def test_the_tie_of_a_key_goes_with_the_key() -> None:
    parent, child = Key(), Key()
    bind_parent(child, parent)
    assert [*chain(child)] == [child, parent]
    number = id(child)
    del child
    gc.collect()

    from dsh.kernel.scope import _Chains

    assert number not in _Chains.links


def test_a_key_that_cannot_be_weakly_referenced_is_refused() -> None:
    with pytest.raises(KernelError, match="weakly referenced, found 'text'"):
        bind_parent("text", Key())


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=30), st.randoms())
def test_undone_in_any_order_nothing_is_left(places: list[tuple[int, str]], rng: object) -> None:
    keys = [None, Key(), Key(), Key()]
    layers: Layers[int] = Layers(taken)
    model: dict[tuple[int, str], int] = {}
    undos: list[tuple[tuple[int, str], Callable[[], None]]] = []
    for number, (at, name) in enumerate(places):
        if (at, name) in model:
            with pytest.raises(KernelError):
                layers.insert(keys[at], name, number)
            continue
        model[at, name] = number
        undos.append(((at, name), layers.insert(keys[at], name, number)))
    rng.shuffle(undos)  # type: ignore[attr-defined]
    for place, undo in undos:
        undo()
        del model[place]
        for at, key in enumerate(keys):
            near = {name: n for (layer, name), n in model.items() if layer == 0}
            near |= {name: n for (layer, name), n in model.items() if layer == at}
            assert layers.view(key) == near
    assert len(layers) == 0
