"""The page on checking sessions: its table has each code that is told, and no other; its recipe works."""

import re
from pathlib import Path

from dsh.session.digest import RequestDigest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "checking-sessions.md").read_text()
SOURCES = [
    *(ROOT / "dsh" / "session" / "verify").glob("*.py"),
    ROOT / "dsh" / "cli" / "sessions" / "verify.py",
]
TOLD = re.compile(r'(?:\.(?:error|warning|_check_\w+)\(\s*|Finding\("(?:error|warning)",\s*)"([A-Z_]+)"')


def test_every_code_is_explained() -> None:
    told = {code for source in SOURCES for code in TOLD.findall(source.read_text())}
    explained = re.findall(r"^\| `([A-Z_]+)` \|", PAGE, re.MULTILINE)

    assert len(told) > 30
    assert sorted(explained) == sorted(told)


def test_the_recipe_for_a_digest_gives_the_digest() -> None:
    [recipe] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope: dict[str, object] = {}
    exec(recipe, scope)
    request = {
        "config": {"provider": "a", "model": "ü", "maxTokens": 8},
        "system": "be brief\x7f",
        "messages": [{"id": "1", "role": "user", "content": [], "source": {"kind": "user"}}],
    }

    made = scope["digest"]
    assert callable(made)
    assert made(request) == RequestDigest().of(request, request["messages"], 0)  # type: ignore[arg-type]
