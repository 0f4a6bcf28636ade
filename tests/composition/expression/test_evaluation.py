"""Evaluation of expressions: values, absent values, limits, hostile texts."""

import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.composition.expression.evaluation import Scope, config_data, evaluate
from dsh.composition.expression.language import ExpressionError, check
from dsh.composition.value import Expr, Mark
from dsh.kernel import Context


class Runtime(msgspec.Struct, rename="camel"):
    trusted_hosts: list[str]
    task: str | None = None


class Publisher:
    def expression_data(self) -> dict[str, object]:
        return {"hosts": ("a", "b")}


def value(text: str, env: Mapping[str, str] | None = None, services: dict[str, Any] | None = None) -> Any:
    ctx = Context()
    for name, service in (services or {}).items():
        ctx.provide(name, service)
    written = Expr(text, Mark("/bundles/x/f.yml", 1, 1))
    check(written)
    return evaluate(written, scope(env or {}, ctx))


def scope(env: Mapping[str, str], ctx: Context | None = None) -> Scope:
    return Scope(env=env, cwd="/ws", profile="demo", home=Path("/h"), ctx=ctx)


@pytest.mark.parametrize(
    ("text", "env", "result"),
    [
        ("home('sessions')", {}, "/h/sessions"),
        ("home()", {}, "/h"),
        ("get(env, 'DSH_TELEMETRY_MODE') or 'DISABLED'", {}, "DISABLED"),
        ("get(env, 'DSH_TELEMETRY_MODE') or 'DISABLED'", {"DSH_TELEMETRY_MODE": ""}, "DISABLED"),
        ("get(env, 'DSH_TELEMETRY_MODE') or 'DISABLED'", {"DSH_TELEMETRY_MODE": "ON"}, "ON"),
        ("get(env, 'U', 'https://x')", {}, "https://x"),
        ("get(env, 'U', 'https://x')", {"U": ""}, ""),
        ("get(env, 'DSH_PERMISSION_MODE', 'workspace-write')", {}, "workspace-write"),
        (
            "get(env, 'DSH_PERMISSION_MODE', 'workspace-write')",
            {"DSH_PERMISSION_MODE": "read-only"},
            "read-only",
        ),
        ("cwd", {}, "/ws"),
        ("platform == 'win32'", {}, sys.platform == "win32"),
        ("platform != 'win32'", {}, sys.platform != "win32"),
        ("get(env, 'DSH_TOOLS_MODE')", {}, None),
        ("get(env, 'DSH_TOOLS_MODE')", {"DSH_TOOLS_MODE": "native"}, "native"),
        ("'Bearer ' + env.MCP_TOKEN", {"MCP_TOKEN": "t"}, "Bearer t"),
        ("'zstd' if 'DSH_SNAPSHOT' not in env else 'none'", {}, "zstd"),
        ("'zstd' if 'DSH_SNAPSHOT' not in env else 'none'", {"DSH_SNAPSHOT": ""}, "none"),
        ("python", {}, sys.executable),
        ("profile", {}, "demo"),
        ("here('a/b.txt')", {}, "/bundles/x/a/b.txt"),
    ],
)
def test_the_shapes_of_the_original_have_their_values(text: str, env: dict[str, str], result: object) -> None:
    assert value(text, env) == result


@pytest.mark.parametrize("mode", [None, "", "read-only", "danger-full-access"])
def test_approval_follows_the_same_variable_as_the_policy(mode: str | None) -> None:
    env = {} if mode is None else {"DSH_PERMISSION_MODE": mode}
    text = "'never' if get(env, 'DSH_PERMISSION_MODE', 'workspace-write') == 'danger-full-access' else 'ask'"
    assert value(text, env) == ("never" if mode == "danger-full-access" else "ask")


def test_services_give_their_data_as_mapping_struct_or_published() -> None:
    services = {
        "m": {"port": None},
        "webRuntime": Runtime(["h"]),
        "p": Publisher(),
        "cmdlineArgs": Publisher(),
    }
    assert value("get(svc.m, 'port', 3080)", services=services) == 3080
    assert value("['app.internal', *svc.webRuntime.trustedHosts]", services=services) == ["app.internal", "h"]
    assert value("svc.webRuntime.task", services=services) is None
    assert value("svc.p.hosts", services=services) == ["a", "b"]


def test_a_mapping_is_its_own_data_whatever_it_publishes() -> None:
    class Both(dict[str, int]):
        def expression_data(self) -> dict[str, int]:
            return {"n": 2}

    assert value("svc.s.n", services={"s": Both(n=1)}) == 1


@pytest.mark.parametrize(
    ("service", "says"),
    [
        ({"a": object()}, 'service "s" publishes what is not JSON data'),
        ({"a": {(1, 2): 3}}, 'service "s" publishes what is not JSON data'),
        ({"a": float("nan")}, "a number that is not finite"),
        ({"a": 2**70}, "an integer beyond 64 bits"),
    ],
)
def test_data_that_is_no_json_is_refused(service: object, says: str) -> None:
    with pytest.raises(ExpressionError, match=says):
        value("svc.s.a", services={"s": service})


def test_a_service_that_cannot_publish_is_named_with_its_reason() -> None:
    class Broken:
        def expression_data(self) -> object:
            raise RuntimeError("not yet")

    with pytest.raises(ExpressionError, match=r"f\.yml:1:1: .*service \"s\" cannot publish .*not yet"):
        value("svc.s.a", services={"s": Broken()})


def test_a_computed_key_is_no_part_of_a_message() -> None:
    for text in ("{'a': 1}[env.TOKEN]", "env[env.TOKEN]", "json('{}')[env.TOKEN + 'x']"):
        with pytest.raises(ExpressionError) as caught:
            value(text, {"TOKEN": "s3cr3t"})
        assert "s3cr3t" not in str(caught.value)


def test_a_service_without_data_is_named() -> None:
    with pytest.raises(ExpressionError, match='service "s" publishes no data'):
        value("svc.s.x", services={"s": object()})
    with pytest.raises(ExpressionError, match='service "fiber" is not available'):
        value("svc.fiber.x")


def test_inputs_are_never_changed_and_results_share_nothing_with_them() -> None:
    data = {"list": [1, {"a": 2}]}
    result = value("svc.s.list", services={"s": data})
    result[1]["a"] = 3
    assert data == {"list": [1, {"a": 2}]}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("1 + 2 * 3", 7), ("7 // 2", 3), ("7 % 4", 3), ("2 ** 10", 1024), ("1 / 4", 0.25), ("-(3)", -3),
        ("'a' + 'b'", "ab"), ("[1] + [2]", [1, 2]), ("'ab' * 2", "abab"), ("2 * [1]", [1, 1]),
        ("1 < 2 < 3", True), ("'a' < 'b'", True), ("1 == 1.0", True), ("'a' in {'a': 1}", True),
        ("1 in [1]", True),
        ("'b' in 'abc'", True), ("not ''", True), ("None or 'x'", "x"), ("0 and 1 / 0", 0),
        ("1 if 1 else 1 / 0", 1),
        ("{'a': {'b': [5]}}.a.b[0]", 5), ("{'_x': 1}['_x']", 1), ("[1, 2, 3][-1]", 3), ("int(' 42 ')", 42),
        ("int(3.9)", 3), ("float('1e3')", 1000.0), ("str(1)", "1"), ("str(None)", "None"),
        ("bool('0')", True),
        ("bool('')", False), ("len({'a': 1})", 1), ("json('{\"a\": [1, null]}')", {"a": [1, None]}),
        ("{'a': None}", {"a": None}), ("{'a': 1, **{'b': 2}}", {"a": 1, "b": 2}), ("env.A == env['A']", True),
    ],
)  # fmt: skip
def test_the_operators(text: str, result: object) -> None:
    assert value(text, {"A": "x"}) == result


@pytest.mark.parametrize(
    "text",
    [
        "True + 1", "'a' + 1", "[1] + 'a'", "'a' * 1.5", "'%s' % 1", "-'a'", "-True", "1 < 'a'",
        "True < 2", "1 / 0",
        "2 ** 65", "2 ** 63", "-(2 ** 62) * 3", "9 ** 60", "1e308 * 10", "(-8) ** 0.5", "'a' * 100001",
        "[0] * 100001", "10 ** 10 ** 10", "'%9999999999d' % 1",
        "[[0] * 100000] * 100000 == [[0] * 100000] * 100000",
        "[[[0] * 1000] * 1000] * 1000", "[1][5]", "[1]['a']", "'abc'[0]", "env['MISSING']",
        "env.MISSING", "cwd.x",
        "env", "[env]", "{'e': env}", "{**(env if cwd else env)}", "get('x', 'y')", "get(env, 1)", "int('x')",
        "int('1_0')", "int(True)", "float('nan')", "float('1_0')", "str([1])", "len(1)",
        "json('{\"a\":1,\"a\":2}')",
        "json('NaN')", "json('[')", "json(1)", "json('[' * 50000)", "{1: 2}", "home(1)", "here(None)",
        "1 in 5", "{'a': [[0] * 1000] * 1000} == {'a': [[0] * 1000] * 1000}",
        "1 in 'a'", "[*'abc']", "{**[1]}", "json('1' * 5000)", "json('[' * 40 + ']' * 40)",
    ],
)  # fmt: skip
def test_what_is_not_possible_is_an_error_with_its_place_in_bounded_time(text: str) -> None:
    started = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ExpressionError) as caught:
        value(text)
    assert str(caught.value).startswith("/bundles/x/f.yml:1:1: !expr ")
    assert time.monotonic() - started < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


HOSTILE = [
    "9**9**9", "'a' * 10**18", "[0] * 10**18", "['a' * 100000] * 100000", "'%9999999999d' % 1",
    "[['a' * 100000] * 100] * 100 == [['a' * 100000] * 100] * 100", "json('[' * 100000)",
    "json('1' * 100000)", "[[[[0] * 1000] * 1000] * 1000] * 1000", "home('a' * 100000) * 100000",
    " or ".join(["[[0] * 1000] * 190 == [[1] * 1000] * 190"] * 45),
    " and ".join(["json('[' + '1,' * 49000 + '1]')"] * 55),
]  # fmt: skip
UNDER_A_LIMIT = """
import resource, sys
from pathlib import Path
from dsh.composition.expression.evaluation import Scope, evaluate
from dsh.composition.expression.language import ExpressionError
from dsh.composition.value import Expr, Mark
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 64 * 1024 * 1024,) * 2)
scope = Scope(env={}, cwd="/", profile="p", home=Path("/h"), ctx=None)
try:
    evaluate(Expr(sys.argv[1], Mark("f.yml", 1, 1)), scope)
except ExpressionError:
    pass
"""


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_harmless_in_64_mib_and_a_few_seconds(text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNDER_A_LIMIT, text], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_half_a_surrogate_pair_is_no_result_but_undecodable_bytes_of_a_variable_are_kept() -> None:
    with pytest.raises(ExpressionError, match="half of a surrogate pair"):
        value("json(env.A)", {"A": '"\\ud83d"'})
    assert value("env.A + '/x'", {"A": "caf\udce9"}) == "caf\udce9/x"


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(ExpressionError, match="environment variable TOKEN is not set"):
        value("env.TOKEN")


def test_a_hostile_value_stays_one_string() -> None:
    assert value("env.TOKEN", {"TOKEN": "x: y # z\n- k"}) == "x: y # z\n- k"


def config(text: Any, env: dict[str, str] | None = None) -> Any:
    return config_data(text, scope(env or {}))


def written(text: str) -> Expr:
    return Expr(text, Mark("f.yml", 1, 1))


def test_none_as_a_key_s_value_drops_the_key_at_any_depth() -> None:
    absent = written("get(env, 'X')")
    assert config({"a": absent, "b": {"c": absent, "d": 1}, "l": [{"e": absent}]}) == {
        "b": {"d": 1},
        "l": [{}],
    }
    assert config({"a": absent}, {"X": ""}) == {"a": ""}


def test_a_written_null_and_a_none_inside_a_result_stay_null() -> None:
    assert config({"a": None, "b": written("[None]"), "c": [None]}) == {"a": None, "b": [None], "c": [None]}


def test_none_as_list_item_or_whole_config_is_an_error_with_its_path() -> None:
    with pytest.raises(ExpressionError, match=r"a\.l\[1\]"):
        config({"a": {"l": [1, written("None")]}})
    with pytest.raises(ExpressionError, match="config"):
        config(written("None"))


def test_an_error_names_the_key_path() -> None:
    with pytest.raises(ExpressionError, match=r"f\.yml:1:1: !expr env\.X: a\.b: the environment variable X"):
        config({"a": {"b": written("env.X")}})


@given(st.text(alphabet="envsc.[]()'\"*+-/%, 019aif esl{}:=<>not", max_size=40))
def test_any_text_is_refused_or_gives_json_data(text: str) -> None:
    try:
        result = value(text, {"e": "1"})
    except ExpressionError:
        return
    msgspec.json.encode(result)
