"""An explanation: where rows and values come from, who provides what, and why a row would wait."""

from pathlib import Path

import msgspec

from dsh.composition.compose import compose
from dsh.composition.explain.shape import Explanation, Place, RowInfo, ValueInfo, only
from dsh.composition.lock.digest import contents_of, digest_of
from dsh.composition.profile import shipped
from tests.composition.explained import explained, explained_composition, plugin, row_of
from tests.composition.layers import write

NESTED = """inner_limit: int = 3
name: str | None = None
many: list[str] = msgspec.field(default_factory=list)"""


def values(row: RowInfo) -> dict[str, ValueInfo]:
    return {".".join(value.path): value for value in row.config}


def lines_of(row: RowInfo) -> dict[str, object]:
    """Each config key with the short place it comes from, None for a default."""
    return {key: value.place and value.place.short for key, value in values(row).items()}


def because(found: Explanation, row_id: str) -> list[str]:
    (wait,) = row_of(found, row_id).waits
    return list(wait.because)


def next_step(found: Explanation, row_id: str) -> str:
    (wait,) = row_of(found, row_id).waits
    return wait.next


# -- layers and places -----------------------------------------------------------------------------


def test_layers_are_told_low_to_high_with_kind_file_and_number_of_patches(tmp_path: Path) -> None:
    home = tmp_path / "home"
    profile = write(home / "profiles/headless/dsh.patch.yml", "- {id: tools, optional: true}")
    user = write(home / "dsh.patch.yml", "- {id: llm, optional: true}\n- {id: tools, optional: false}")
    extra = [write(tmp_path / f"{n}.yml", "- {id: llm, optional: null}") for n in (1, 2)]
    made = compose("headless", extra, home, environ={})

    found = explained_composition(made, tmp_path)

    assert [(layer.name, layer.kind, layer.file) for layer in found.layers] == [
        ("base", "bundle", str(shipped("bundles", "base.yml"))),
        ("headless", "bundle", str(shipped("bundles", "headless.yml"))),
        ("profile", "profile", str(profile)),
        ("home", "home", str(user)),
        ("patch", "patch", str(extra[0])),
        ("patch-2", "patch", str(extra[1])),
    ]
    assert [layer.patches for layer in found.layers[2:]] == [1, 2, 1, 1]
    llm = row_of(found, "llm")
    assert llm.origin.layer == "base"
    assert [(change.place.short, change.fields) for change in llm.changes] == [
        ("home:1", ("optional",)),
        ("patch:1", ("optional",)),
        ("patch-2:1", ("optional",)),
    ]


def test_the_digest_is_that_of_the_lock(tmp_path: Path) -> None:
    made = compose("demo", [], tmp_path, environ={})

    assert explained_composition(made, tmp_path).digest == digest_of(contents_of(made, tmp_path))


def test_every_value_names_the_file_line_and_column_that_it_is_written_at(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p", config="one: int\ntwo: dict[str, int]\nthree: str")
    found = explained(
        tmp_path,
        f"- insert:\n    - id: p\n      {row}\n      config:\n        one: 1\n        two: {{a: 1, b: 2}}\n",
        "- id: p\n  merge:\n    two:\n      b: 3\n    three: !expr cwd\n",
    )

    first, second = (str(tmp_path / f"layer{n}.yml") for n in (0, 1))
    shown = {
        key: (value.value, value.place and (value.place.file, value.place.line, value.place.column))
        for key, value in values(row_of(found, "p")).items()
    }
    assert shown == {
        "one": (1, (first, 5, 14)),
        "two.a": (1, (first, 6, 18)),
        "two.b": (3, (second, 4, 10)),
        "three": (None, (second, 5, 12)),
    }
    assert values(row_of(found, "p"))["three"].expression == "cwd"


def test_what_no_layer_says_is_a_default_of_the_plugin(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p", config=NESTED + "\nneeded: str")
    found = explained(tmp_path, f"- insert: [{{id: p, {row}, config: {{needed: x, name: null}}}}]")

    assert [(v.path, v.value, v.source) for v in row_of(found, "p").config] == [
        (("needed",), "x", "written"),
        (("name",), None, "written"),
        (("innerLimit",), 3, "default"),
        (("many",), [], "default"),
    ]


def test_defaults_inside_structs_lists_and_maps_are_told_too(tmp_path: Path) -> None:
    write(
        tmp_path / "p.py",
        "import msgspec\n"
        "class Item(msgspec.Struct):\n    x: int\n    y: int = 7\n"
        "class Config(msgspec.Struct):\n"
        "    one: Item | None = None\n    many: list[Item] = []\n    named: dict[str, Item] = {}\n"
        "    whole: Item = msgspec.field(default_factory=lambda: Item(1, 2))\n"
        "def apply(ctx, config): ...\n",
    )
    config = "{one: {x: 1}, many: [{x: 2}, {x: 3, y: 4}], named: {a: {x: 5}}}"
    found = explained(tmp_path, f"- insert: [{{id: p, name: ./p.py, config: {config}}}]")

    assert {key: (v.value, v.source) for key, v in values(row_of(found, "p")).items()} == {
        "one.x": (1, "written"),
        "one.y": (7, "default"),
        "many.0.x": (2, "written"),
        "many.0.y": (7, "default"),
        "many.1.x": (3, "written"),
        "many.1.y": (4, "written"),
        "named.a.x": (5, "written"),
        "named.a.y": (7, "default"),
        "whole.x": (1, "default"),
        "whole.y": (2, "default"),
    }


def test_a_null_that_the_plugin_does_not_take_is_a_default_with_the_place_of_the_null(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p", config="one: int = 1")
    found = explained(tmp_path, f"- insert: [{{id: p, {row}, config: {{one: null}}}}]")

    (value,) = row_of(found, "p").config
    assert (value.value, value.source) == (1, "default")
    assert value.place is not None
    assert value.place.line == 1


def test_a_key_that_the_plugin_does_not_know_is_marked(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p", config="one: int = 1")
    found = explained(tmp_path, f"- insert: [{{id: p, {row}, config: {{oen: 2}}}}]")

    assert [(key, value.unknown) for key, value in values(row_of(found, "p")).items()] == [
        ("oen", True),
        ("one", False),
    ]


def test_secrets_are_masked_in_values_defaults_and_expressions(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p", config="a: str\nb: str\nc: str = 'sk-SECRETSECRET3'")
    config = "{a: sk-SECRETSECRET1, b: !expr \"env.B or 'sk-SECRETSECRET2'\"}"
    found = explained(tmp_path, f"- insert: [{{id: p, {row}, config: {config}}}]", env={"B": "x"})
    found_without = explained(tmp_path, f"- insert: [{{id: p, {row}, config: {config}}}]")

    assert "SECRET" not in (row_of(found_without, "p").problem or "SECRET")
    text = msgspec.json.encode(found).decode()
    assert "SECRET" not in text
    assert text.count("sk-***") == 3


def test_values_of_the_environment_are_nowhere(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p", config="a: str")
    text = f"- insert: [{{id: p, {row}, config: {{a: !expr env.TOKEN}}, disabled: !expr env.TOKEN == 'x'}}]"

    found = explained(tmp_path, text, env={"TOKEN": "hidden-value"})

    assert "hidden-value" not in msgspec.json.encode(found).decode()


def test_keys_that_a_replaced_config_lost_are_named_with_who_lost_them(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p", config="a: int = 0\nb: int = 0\nc: int = 0")
    found = explained(
        tmp_path,
        f"- insert: [{{id: p, {row}, config: {{a: 1, b: 2, c: 3}}}}]",
        "- {id: p, config: {a: 1}}",
        "- {id: p, merge: {c: 4}}",
    )

    assert [(d.layer, d.key) for d in row_of(found, "p").dropped] == [(str(tmp_path / "layer1.yml"), "b")]


def test_a_removed_row_is_told_with_the_patch_that_took_it_out(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p")
    found = explained(tmp_path, f"- insert: [{{id: p, {row}}}]", "# why\n- {id: p, remove: true}")

    assert [(r.id, r.place.line) for r in found.removed] == [("p", 2)]
    assert found.rows == ()


def test_misses_of_patches_are_warnings(tmp_path: Path) -> None:
    found = explained(tmp_path, "- {id: ghost, disabled: true}")

    assert "ghost" in found.warnings[0]


def test_the_launchers_own_layer_is_named_without_a_line(tmp_path: Path) -> None:
    made = compose("headless", [], tmp_path, environ={"DSH_TELEMETRY_DISABLED": "1"})

    disabled = row_of(explained_composition(made, tmp_path), "session-telemetry-otel").disabled

    assert disabled is not None
    assert (disabled.text, disabled.place.short, disabled.place.layer) == (
        "disabled: true",
        "<launcher>",
        "<launcher>",
    )


# -- who is off ------------------------------------------------------------------------------------


def test_a_disabled_row_names_who_says_so_and_how(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p")
    found = explained(
        tmp_path,
        f"- insert: [{{id: a, {row}}}, {{id: c, {row}}}]\n"
        f"- insert: [{{id: b, {row}, disabled: !expr platform != 'win32'}}]",
        "\n- {id: a, disabled: true}",
    )

    shown = {
        r.id: r.disabled and (r.state, r.disabled.row, r.disabled.text, r.disabled.place.short)
        for r in found.rows
    }
    assert shown == {
        "a": ("disabled", "a", "disabled: true", "patch-2:2"),
        "b": ("disabled", "b", "disabled: !expr platform != 'win32'", "patch:2"),
        "c": None,
    }
    assert row_of(found, "c").state == "ready"


def test_a_row_inside_a_disabled_group_names_the_group(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p")
    inner = f"{{id: in, name: cordis:group, group: true, config: [{{id: p, {row}, disabled: !expr 1 == 2}}]}}"
    found = explained(
        tmp_path,
        f"- insert: [{{id: out, name: cordis:group, group: true, disabled: true, config: [{inner}]}}]",
    )

    assert {r.id: (r.state, r.group, r.disabled and r.disabled.row) for r in found.rows} == {
        "out": ("disabled", None, "out"),
        "in": ("disabled", "out", "out"),
        "p": ("disabled", "in", "out"),
    }


# -- services --------------------------------------------------------------------------------------


def test_services_name_provider_and_consumers_and_who_asks(tmp_path: Path) -> None:
    give, take = plugin(tmp_path, "give", provide="s t"), plugin(tmp_path, "take", inject="s cmdlineArgs")
    found = explained(
        tmp_path,
        f"- insert: [{{id: g, {give}}}, {{id: a, {take}}}, {{id: b, {take}, inject: [t]}}]",
    )

    assert {s.service: (s.realm, s.providers, s.consumers) for s in found.services} == {
        "cmdlineArgs": ("default", ("<launcher>",), ("a", "b")),
        "s": ("default", ("g",), ("a", "b")),
        "t": ("default", ("g",), ("b",)),
    }
    assert [(i.service, i.asked_by, i.providers) for i in row_of(found, "b").injects] == [
        ("s", "plugin", ("g",)),
        ("cmdlineArgs", "plugin", ("<launcher>",)),
        ("t", "row", ("g",)),
    ]
    assert row_of(found, "g").provides == ("s", "t")
    assert [row.state for row in found.rows] == ["ready"] * 3


def test_realms_part_providers_from_consumers(tmp_path: Path) -> None:
    give, take = plugin(tmp_path, "give", provide="s"), plugin(tmp_path, "take", inject="s")
    found = explained(
        tmp_path,
        "- insert:\n"
        f"  - {{id: g, {give}, isolate: {{s: true}}}}\n"
        f"  - {{id: h, {give}, isolate: {{s: shared}}}}\n"
        f"  - {{id: a, {take}, isolate: {{s: shared}}}}\n"
        f"  - {{id: b, {take}}}\n"
        "  - id: k\n    name: cordis:group\n    group: true\n    isolate: {s: shared}\n"
        f"    config: [{{id: c, {take}}}, {{id: d, {take}, isolate: {{s: true}}}}]\n",
    )

    assert {r.id: (r.injects[0].realm, r.injects[0].providers) for r in found.rows if r.injects} == {
        "a": ("label shared", ("h",)),
        "b": ("default", ()),
        "c": ("label shared", ("h",)),
        "d": ("private to d", ()),
    }
    assert because(found, "b") == ["row g provides it in another realm (private to g; here: default)"]
    assert next_step(found, "b") == "give both rows the same label: isolate: {s: shared}"


def test_the_launchers_services_are_not_in_other_realms(tmp_path: Path) -> None:
    take = plugin(tmp_path, "take", inject="appExit")
    found = explained(tmp_path, f"- insert: [{{id: a, {take}, isolate: {{appExit: true}}}}]")

    assert because(found, "a") == ["the launcher provides it outside of this realm (private to a)"]


# -- rows that would wait --------------------------------------------------------------------------


def test_a_row_without_any_provider_says_so_and_which_plugins_would_do(tmp_path: Path) -> None:
    take = plugin(tmp_path, "take", inject="shell")
    found = explained(tmp_path, f"- insert: [{{id: a, {take}}}]")

    assert row_of(found, "a").state == "waiting"
    assert because(found, "a") == ["no row provides it"]
    assert next_step(found, "a") == (
        "add a row of a plugin that provides it (bash-local, bash-sandbox): "
        "- insert: [{id: bash-local, name: bash-local}]"
    )


def test_a_misspelt_service_is_answered_with_the_closest(tmp_path: Path) -> None:
    take = plugin(tmp_path, "take", inject="cmdlineArg")
    found = explained(tmp_path, f"- insert: [{{id: a, {take}}}]")

    assert next_step(found, "a").startswith('did you mean "cmdlineArgs"?')


def test_a_disabled_provider_is_named_with_what_disables_it(tmp_path: Path) -> None:
    give, take = plugin(tmp_path, "give", provide="s"), plugin(tmp_path, "take", inject="s")
    found = explained(
        tmp_path, f"- insert: [{{id: g, {give}}}, {{id: a, {take}}}]", "\n\n- {id: g, disabled: true}"
    )

    assert because(found, "a") == ["row g provides it and is disabled at patch-2:3 (disabled: true)"]
    assert next_step(found, "a") == "enable it with a patch: {id: g, disabled: false}"


def test_a_provider_in_a_disabled_group_is_named_with_the_group(tmp_path: Path) -> None:
    give, take = plugin(tmp_path, "give", provide="s"), plugin(tmp_path, "take", inject="s")
    group = f"{{id: k, name: cordis:group, group: true, disabled: true, config: [{{id: g, {give}}}]}}"
    found = explained(tmp_path, f"- insert: [{group}, {{id: a, {take}}}]")

    assert because(found, "a") == [
        "row g provides it and is disabled with the group k at patch:1 (disabled: true)"
    ]
    assert next_step(found, "a") == "enable it with a patch: {id: k, disabled: false}"


def test_a_removed_provider_is_named_with_the_patch_that_removes_it(tmp_path: Path) -> None:
    give, take = plugin(tmp_path, "give", provide="s"), plugin(tmp_path, "take", inject="s")
    found = explained(
        tmp_path, f"- insert: [{{id: g, {give}}}, {{id: a, {take}}}]", "- {id: g, remove: true}"
    )

    assert because(found, "a") == ["row g, which provided it, is removed at patch-2:1"]
    assert next_step(found, "a") == "take that patch out"


def test_the_reason_goes_down_to_the_cause(tmp_path: Path) -> None:
    rows = [
        f"{{id: {me}, {plugin(tmp_path, me, inject=needs, provide=gives)}}}"
        for me, needs, gives in (("a", "s1", ""), ("b", "s2", "s1"), ("c", "s3", "s2"), ("d", "", "s3"))
    ]
    found = explained(tmp_path, f"- insert: [{', '.join(rows)}]", "- {id: d, disabled: true}")

    assert because(found, "a") == [
        "row b provides it and does not start itself",
        "row b waits for s2",
        "row c provides it and does not start itself",
        "row c waits for s3",
        "row d provides it and is disabled at patch-2:1 (disabled: true)",
    ]
    assert (
        next_step(found, "a") == next_step(found, "c") == "enable it with a patch: {id: d, disabled: false}"
    )


def test_a_long_chain_is_followed_so_far_and_points_on(tmp_path: Path) -> None:
    rows = [
        f"{{id: r{n}, {plugin(tmp_path, f'p{n}', inject=f's{n + 1}', provide=f's{n}')}}}" for n in range(800)
    ]
    found = explained(tmp_path, f"- insert: [{', '.join(rows)}]")

    assert {row.state for row in found.rows} == {"waiting"}
    assert because(found, "r0")[-1] == "row r12 provides it and does not start itself"
    assert next_step(found, "r0") == "see dsh explain r12"
    assert because(found, "r799") == ["no row provides it"]


def test_rows_that_wait_for_each_other_are_told_as_a_circle(tmp_path: Path) -> None:
    rows = [
        f"{{id: {me}, {plugin(tmp_path, me, inject=needs, provide=gives)}}}"
        for me, needs, gives in (("a", "s1", ""), ("b", "s2", "s1"), ("c", "s1", "s2"))
    ]
    found = explained(tmp_path, f"- insert: [{', '.join(rows)}]")

    assert because(found, "a")[-1] == ("row b provides it, and the rows wait in a circle: b -> c -> b")
    assert next_step(found, "a") == "make one of these rows do without: b, c"


def test_a_row_that_needs_itself_is_a_circle(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p", inject="s", provide="s")
    found = explained(tmp_path, f"- insert: [{{id: a, {row}}}]")

    assert because(found, "a")[-1].endswith("in a circle: a -> a")


def test_what_is_inside_a_group_that_waits_waits_with_it(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p")
    found = explained(
        tmp_path,
        f"- insert: [{{id: g, name: cordis:group, group: true, inject: [nope], config: [{{id: a, {row}}}]}}]",
    )

    assert [r.state for r in found.rows] == ["waiting", "waiting"]
    (wait,) = row_of(found, "a").waits
    assert wait.service is None
    assert list(wait.because) == [
        "row g around it does not start",
        "row g waits for nope",
        "no row provides it",
    ]


def test_a_plugin_that_declares_nothing_leaves_it_open(tmp_path: Path) -> None:
    silent, take = plugin(tmp_path, "silent", provide=None), plugin(tmp_path, "take", inject="s")
    found = explained(tmp_path, f"- insert: [{{id: q, {silent}}}, {{id: a, {take}}}]")

    assert row_of(found, "q").provides is None
    assert row_of(found, "a").state == "unclear"
    assert because(found, "a") == ["no row declares that it provides it; without a declaration: q"]


def test_one_provider_that_waits_does_not_hide_another_that_starts(tmp_path: Path) -> None:
    give = plugin(tmp_path, "give", provide="s")
    stuck, take = plugin(tmp_path, "stuck", inject="nope", provide="s"), plugin(tmp_path, "take", inject="s")
    found = explained(tmp_path, f"- insert: [{{id: x, {stuck}}}, {{id: g, {give}}}, {{id: a, {take}}}]")

    assert (row_of(found, "a").state, row_of(found, "x").state) == ("ready", "waiting")


# -- problems --------------------------------------------------------------------------------------


def test_a_config_that_would_be_refused_is_a_problem_with_its_place(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p", config="one: int")
    found = explained(tmp_path, f"- insert: [{{id: p, {row}, config: {{one: x}}}}]")

    problem = row_of(found, "p").problem
    assert problem is not None
    assert row_of(found, "p").state == "failing"
    assert f"{tmp_path / 'layer0.yml'}:1:" in problem
    assert "expected integer but got string" in problem


def test_a_config_that_depends_on_a_service_is_not_judged(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p", inject="headlessStartup", config="one: int")
    found = explained(tmp_path, f"- insert: [{{id: p, {row}, config: {{one: !expr svc.headlessStartup.x}}}}]")

    assert row_of(found, "p").problem is None


def test_an_optional_row_that_cannot_be_loaded_is_told_and_the_rest_explained(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p")
    found = explained(tmp_path, f"- insert: [{{id: x, name: ./absent.py, optional: true}}, {{id: p, {row}}}]")

    assert {r.id: (r.state, r.optional) for r in found.rows} == {
        "x": ("failing", True),
        "p": ("ready", False),
    }
    problem = row_of(found, "x").problem
    assert problem is not None
    assert "absent.py" in problem


def test_an_unknown_key_of_a_row_of_ones_own_is_marked_and_no_problem(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p", config="one: int = 1")
    found = explained(tmp_path, f"- insert: [{{id: p, {row}, config: {{oen: 2}}}}]")

    assert row_of(found, "p").problem is None


# -- one row ---------------------------------------------------------------------------------------


def test_one_row_comes_with_what_is_inside_and_their_services(tmp_path: Path) -> None:
    give, take = plugin(tmp_path, "give", provide="s t"), plugin(tmp_path, "take", inject="s")
    group = f"{{id: k, name: cordis:group, group: true, config: [{{id: a, {take}}}]}}"
    found = explained(tmp_path, f"- insert: [{{id: g, {give}}}, {group}]")

    one = only(found, "k")

    assert [row.id for row in one.rows] == ["k", "a"]
    assert [service.service for service in one.services] == ["s"]


def test_rows_of_an_include_carry_its_id_and_the_places_of_its_file(tmp_path: Path) -> None:
    row = plugin(tmp_path, "p", config="one: int = 1")
    write(tmp_path / "more.yml", f"- {{id: x, {row}, config: {{one: 2}}}}")
    found = explained(tmp_path, "- insert: [{id: inc, name: 'cordis:include', config: {path: ./more.yml}}]")

    inner = row_of(found, "inc:x")
    assert inner.group == "inc"
    file = str(tmp_path / "more.yml")
    assert inner.config[0].place == Place(layer=None, file=file, line=1, column=39, short=f"{file}:1")
