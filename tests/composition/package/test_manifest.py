"""`profile.yml` in step with what is installed: the rules of reconciliation, one by one."""

from pathlib import Path

import pytest

from dsh.composition.package.manifest import initial_text, reconciled, requirements
from dsh.composition.package.site import Package
from dsh.composition.profile import Profile, read_profile


def package(name: str, *bundles: str, requested: bool = True, source: str | None = None) -> Package:
    return Package(name, "1.0", requested, bundles, (), (), source, ())


def by_key(*packages: Package) -> dict[str, Package]:
    return {one.key: one for one in packages}


def bundles_after(
    bundles: list[str], before: list[Package], after: list[Package], installed: set[str] | None = None
) -> list[str]:
    text = initial_text("mine", bundles)
    manifest = Profile("mine", bundles, [], {})
    made = reconciled(
        text, Path("profile.yml"), manifest, [], (by_key(*before), by_key(*after)), installed or set()
    )
    assert set(made.added) == set(read(made.text).bundles) - set(bundles)
    assert set(made.removed) == set(bundles) - set(read(made.text).bundles)
    return read(made.text).bundles


def read(text: str) -> Profile:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.yml"
        path.write_text(text)
        return read_profile(path, "mine", [])


@pytest.mark.parametrize("bundles", [[], ["base"], ["base", "headless"]])
def test_the_first_manifest_says_what_it_is(bundles: list[str]) -> None:
    text = initial_text("mine", bundles)
    assert text.startswith("# Profile mine: ")
    assert (read(text).bundles, read(text).requires) == (bundles, [])


def test_a_requested_package_appends_its_bundles_once() -> None:
    there = package("a", "x", "y")
    assert bundles_after(["base"], [], [there]) == ["base", "x", "y"]
    assert bundles_after(["base", "y"], [there], [there]) == ["base", "y", "x"]


def test_the_bundle_of_a_package_that_only_others_need_is_not_appended() -> None:
    assert bundles_after(["base"], [], [package("a", "x", requested=False)]) == ["base"]


def test_a_bundle_leaves_with_the_last_package_that_brings_it() -> None:
    assert bundles_after(["base", "x"], [package("a", "x")], []) == ["base"]
    assert bundles_after(["base", "x"], [package("a", "x")], [package("b", "x")]) == ["base", "x"]
    assert bundles_after(["x"], [package("a", "x")], [], installed={"x"}) == ["x"]


def test_bundles_that_no_package_brought_are_the_user_s() -> None:
    assert bundles_after(["base", "theirs"], [package("a", "x")], []) == ["base", "theirs"]


def test_shipped_and_installed_names_are_never_a_package_s() -> None:
    assert bundles_after([], [], [package("a", "base", "w", "x")], installed={"w"}) == ["x"]


def test_a_manifest_without_a_list_keeps_the_shipped_one_in_front() -> None:
    manifest = Profile("headless", ["base", "headless"], [], {})
    made = reconciled("# c\n", Path("p"), manifest, ["a"], ({}, by_key(package("a", "x"))), set())
    assert made.text == "# c\nbundles:\n  - base\n  - headless\n  - x\nrequires:\n  - a\n"


def test_requirements_keep_their_order_and_the_user_s_words() -> None:
    after = by_key(
        package("a"), package("B_b"), package("c", requested=False), package("d", source="d @ file:///d")
    )
    fresh = frozenset(after)
    assert requirements(["z>=1", "a==1"], ["b.b[x]>1", "a", "./d"], after, fresh, frozenset()) == [
        "z>=1",
        "a",
        "b.b[x]>1",
        "d @ file:///d",
    ]
    assert requirements(["d @ git+https://d", "a==1"], [], after, frozenset(), frozenset({"a"})) == [
        "d @ git+https://d",
        "B_b",
    ]
