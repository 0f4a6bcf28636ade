"""What a `Config` marks secret is not shown by `dsh explain`, whatever it is called and looks like."""

import json
from typing import Any

import pytest

from dsh.testing.workspace import Workspace

PLUGIN = """
from typing import Annotated
import msgspec
from dsh.capabilities.settings import SECRET

class Login(msgspec.Struct, kw_only=True):
    user: str = "nobody"
    word: Annotated[str, SECRET] = "given-by-default"

class Config(msgspec.Struct, kw_only=True, rename="camel"):
    pin: Annotated[str, SECRET] | None = None
    login: Login = msgspec.field(default_factory=Login)
    logins: list[Login] = []
    grid: list[list[Login]] = []
    named: dict[str, Login] = {}
    words: dict[str, Annotated[str, SECRET]] = {}
    listed: list[Annotated[str, SECRET]] = []
    read: Annotated[str, SECRET] = ""
    plain: str = "seen"

    def __post_init__(self):
        if self.pin is not None and len(self.pin) > 9:
            raise ValueError(f"expected 9 letters but got {self.pin}")

provide = ()
def apply(ctx, config): ...
"""
CONFIG = """
- insert:
    - id: vault
      name: ./vault.py
      config:
        pin: hunter1
        login: {user: me, word: hunter2}
        logins: [{user: me, word: hunter3}]
        grid: [[{user: me, word: hunter4}]]
        named: {a: {user: me, word: hunter5}}
        words: {a: hunter6}
        listed: [hunter7]
        read: !expr get(env, 'VAULT_WORD', 'hunter8')
        pni: hunter9
"""


@pytest.fixture
def vault(space: Workspace) -> Workspace:
    space.write("vault.py", PLUGIN)
    space.write("p.yml", CONFIG)
    return space


def test_the_text_has_no_secret(vault: Workspace) -> None:
    done = vault.run("explain", "--patch", "p.yml", "vault")

    assert (done.code, done.stderr) == (0, "")
    assert "hunter" not in done.stdout
    assert "pin: ***" in done.stdout
    assert "login.user: me" in done.stdout
    assert "read: !expr get(env, 'VAULT_WORD', '***')" in done.stdout


def test_the_json_has_no_secret(vault: Workspace) -> None:
    done = vault.run("explain", "--patch", "p.yml", "--json", "vault")

    assert "hunter" not in done.stdout
    [row] = json.loads(done.stdout)["rows"]
    found: dict[str, Any] = {".".join(value["path"]): value["value"] for value in row["config"]}
    assert found == {
        "pin": "***",
        "login.user": "me",
        "login.word": "***",
        "logins.0.user": "me",
        "logins.0.word": "***",
        "grid": [[{"user": "me", "word": "***"}]],
        "named.a.user": "me",
        "named.a.word": "***",
        "words.a": "***",
        "listed": ["***"],
        "read": None,
        "pni": "***",
        "plain": "seen",
    }


def test_a_secret_that_is_a_default_is_not_shown(vault: Workspace) -> None:
    vault.write("p.yml", "- insert: [{id: vault, name: ./vault.py}]")

    done = vault.run("explain", "--patch", "p.yml", "vault")

    assert "given-by-default" not in done.stdout
    assert "plain: seen" in done.stdout


@pytest.mark.parametrize("words", [["explain"], ["run", "x"]])
def test_a_config_that_is_refused_is_told_without_it(vault: Workspace, words: list[str]) -> None:
    vault.write("p.yml", "- insert: [{id: vault, name: ./vault.py, config: {pin: open-sesame}}]")

    done = vault.run(words[0], "--patch", "p.yml", *words[1:])

    assert "expected 9 letters but got ***" in done.stdout + done.stderr
    assert "open-sesame" not in done.stdout + done.stderr
