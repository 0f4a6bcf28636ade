"""What is answered to a `!!js`: the expression of ours that means the same, or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.composition.expression.language import check
from dsh.composition.expression.legacy_js import expression_for
from dsh.composition.text.yaml import YamlError, parse_yaml
from dsh.composition.value import Expr, Mark

SHAPES = {
    "dshHomePath('sessions')": "home('sessions')",
    "ctx.dshHomePath('a', 'b')": "home('a', 'b')",
    "ctx.dshHomePath()": "home()",
    "process.env.DSH_TELEMETRY_MODE || 'DISABLED'": "get(env, 'DSH_TELEMETRY_MODE') or 'DISABLED'",
    "process.env.DSH_TELEMETRY_OTLP_URL ?? 'https://x/y?a=b'": "get(env, 'DSH_TELEMETRY_OTLP_URL', 'https://x/y?a=b')",
    'process.env["A"] ?? "b"': "get(env, 'A', \"b\")",
    "process.cwd()": "cwd",
    "(process.env.M ?? 'workspace-write') === 'danger-full-access' ? 'never' : 'ask'":
        "'never' if (get(env, 'M', 'workspace-write')) == 'danger-full-access' else 'ask'",
    "process.platform === 'win32'": "platform == 'win32'",
    "process.platform !== 'win32'": "platform != 'win32'",
    " process.env.DSH_TOOLS_MODE ": "get(env, 'DSH_TOOLS_MODE')",
    "ctx.headlessStartup.task": "svc.headlessStartup.task",
    "webRuntime.trustedHosts": "svc.webRuntime.trustedHosts",
    "ctx.webStartup.port ?? 3080": "get(svc.webStartup, 'port', 3080)",
    "webStartup.host ?? '127.0.0.1'": "get(svc.webStartup, 'host', '127.0.0.1')",
    "['app.internal', ...ctx.webRuntime.trustedHosts]": "['app.internal', *svc.webRuntime.trustedHosts]",
    "`Bearer ${process.env.MCP_TOKEN}`": "'Bearer ' + env.MCP_TOKEN",
    "`${process.cwd()}/x`": "(cwd) + '/x'",
    "process.env.SNAPSHOT === undefined ? 'zstd' : 'none'": "'zstd' if 'SNAPSHOT' not in env else 'none'",
    "process.env.A !== undefined && process.env.B === 'x'": "'A' in env and get(env, 'B') == 'x'",
    "process.execPath": "python",
    "true": "True",
}  # fmt: skip


@pytest.mark.parametrize("theirs", SHAPES)
def test_every_shape_of_the_original_s_files_is_answered_with_ours(theirs: str) -> None:
    assert expression_for(theirs) == SHAPES[theirs]
    with pytest.raises(YamlError) as caught:
        parse_yaml(("- id: r\n  config: {k: !!js '" + theirs.replace("'", "''") + "'}").encode(), "f.yml")
    assert str(caught.value).startswith("f.yml:2:15: !!js is not run here (row 'r')")
    said, _, ours = caught.value.hint.partition(": ")
    assert said == "write"
    [read] = parse_yaml(f"[{ours}]".encode(), "f.yml")  # as it stands, even inside of brackets
    assert read == Expr(SHAPES[theirs], read.mark)


@pytest.mark.parametrize(
    "theirs",
    [
        "process.exit(1)", "require('fs').readFileSync('x')", "(() => 1)()", "process.env", "x => x", "a + b",
        "ctx.get('x')", "process.version", "`a${", "'a", "[1", "a ? b", "?", "??", "ctx.a.b.c",
        "`it's ${env.A}`", "1 === 1 === 1",
        "'a\\'b'", "process.env.A ?? process.env.B ?? x + 1", "", "(" * 400,
    ],
)  # fmt: skip
def test_other_programs_are_not_translated(theirs: str) -> None:
    assert expression_for(theirs) is None


@given(st.text(alphabet="env.ctxA?|&=!:'`\"${}()[] ,prosudf1", max_size=40))
def test_whatever_is_answered_is_of_the_language(theirs: str) -> None:
    ours = expression_for(theirs)
    if ours is not None:
        check(Expr(ours, Mark("f.yml", 1, 1)))
