"""What an expression may say: judged when the file is read, without running it."""

import time

import pytest

from dsh.composition.expression.language import ExpressionError, check
from dsh.composition.value import Expr, Mark


def expr(text: str) -> Expr:
    return Expr(text, Mark("f.yml", 3, 5))


@pytest.mark.parametrize(
    "text",
    [
        "home('sessions')", "get(env, 'X') or 'D'", "env.X", "env['_x']", "cwd", "platform == 'win32'",
        "python",
        "'a' if 'X' not in env else 'b'", "['a', *svc.web.hosts]", "{'a': 1, **svc.web.more}", "-1",
        "not True",
        "1 < 2 <= 3", "svc.a.b is None", "None is not svc.a.b", "[1, 2][0]", "{'a': 1}['a']",
        "2 ** 3 // 2 % 2",
        "get(svc.webStartup, 'port', 3080)", "json('{}').a", "len('x')", "home()", "profile", "'a' 'b'",
        "(1)",
    ],
)  # fmt: skip
def test_the_language_is_accepted(text: str) -> None:
    check(expr(text))


@pytest.mark.parametrize(
    "text",
    [
        "[x for x in env]", "{x: 1 for x in env}", "(x for x in env)", "lambda: 1", "f'{cwd}'", "b'x'",
        "{1, 2}",
        "(1, 2)", "'abc'[0:1]", "1 | 2", "1 & 2", "1 ^ 2", "~1", "1 << 2", "1 >> 2", "(x := 1)", "+1",
        "...", "1j",
        "env.get('X')", "''.join([])", "cwd.upper()", "home(*['a'])", "home(x='a')", "open('x')", "eval('1')",
        "__import__('os')", "env.__class__", "env._x", "cwd.__class__.__mro__", "svc", "svc['a']",
        "get(svc, 'a')",
        "[svc]", "svc._a", "unknown", "home", "{**env}", "1; 2", "a = 1", "", "1 +", "import os",
        "yield", "await x",
        "1 is 2", "u'x'", "9223372036854775808", "1e999", "int()", "get(env)", "here()", "str(1, 2)",
        "\0", "*env",
        "svc.a()", "(lambda: 0)()", "print('x')", "1 @ 2", "env.X.__class__", "nan", "[1, 2][0,1]",
        "'\\ud800'",
    ],
)  # fmt: skip
def test_everything_else_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        check(expr(text))
    assert str(caught.value).startswith("f.yml:3:5: !expr ")
    assert "\n" not in str(caught.value)


def test_services_are_found_without_running_anything() -> None:
    found = check(expr("svc.a.x if cwd else get(svc.b, 'k', [*svc.c.l])"))
    assert found.services == {"a", "b", "c"}


def test_disabled_cannot_read_services() -> None:
    with pytest.raises(ExpressionError, match="nothing is mounted yet"):
        check(expr("svc.a.b"), allow_services=False)


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(ExpressionError) as caught:
        check(expr("envv.X"))
    assert "env, svc, cwd" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "1 + " * 700 + "1",
        "(" * 300 + "1" + ")" * 300,
        "-" * 1500 + "1",
        "not " * 400 + "1",
        "'" + "x" * 3000 + "'",
    ],
)
def test_size_and_depth_are_bounded(text: str) -> None:
    started = time.monotonic()
    with pytest.raises(ExpressionError):
        check(expr(text))
    assert time.monotonic() - started < 30
