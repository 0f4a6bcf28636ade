"""The page of the tools shows every tool that a run really has, and what its model is told."""

from pathlib import Path
from typing import Any

from docs.generate.source import REPOSITORY
from docs.generate.tools import Catalogued, catalogued, parameters
from dsh.testing.workspace import Workspace, log_rows

PAGE = (REPOSITORY / "docs" / "tool-catalogue.md").read_text(encoding="utf-8")


def of_base() -> dict[str, Catalogued]:
    return {tool.definition.name: tool for tool in catalogued() if tool.bundle == "base" and not tool.is_off}


def told_in_a_run(tmp_path: Path) -> dict[str, Any]:
    space = Workspace(tmp_path)
    space.env.update(DEEPSEEK_API_KEY="nobody-is-asked")
    done = space.run("--profile", "demo", "hello")
    assert done.code == 0, done.stderr
    (log,) = space.logs()
    headers = [row["data"]["header"] for row in log_rows(log) if row["type"] == "request/header"]
    return {tool["name"]: tool for tool in headers[0]["tools"]}


def test_the_tools_of_a_run_are_those_of_the_page(tmp_path: Path) -> None:
    found, listed = told_in_a_run(tmp_path), of_base()

    assert sorted(found) == sorted(listed)
    for name, tool in found.items():
        shown = {path for path, *_ in parameters(listed[name].definition.parameters)}
        assert {path for path, *_ in parameters(tool["parameters"])} <= shown
        assert listed[name].definition.description.startswith(tool["description"][:100])


def test_every_row_with_tools_is_there() -> None:
    rows = {tool.row for tool in catalogued()}
    folder = REPOSITORY / "dsh" / "plugins"
    named = {path.stem.replace("_", "-") for path in folder.glob("tool_*")} - {"tool-result-pruner"}

    assert named - rows == set()


def test_every_tool_and_parameter_says_what_it_is_for() -> None:
    silent = [
        f"{tool.definition.name}: {path}"
        for tool in catalogued()
        for path, _, meaning in parameters(tool.definition.parameters)
        if not meaning and "." not in path
    ]
    assert silent == []
    assert [tool.definition.name for tool in catalogued() if not tool.definition.description] == []


def test_a_tool_that_a_key_switches_off_is_there_as_off() -> None:
    (fetch,) = [tool for tool in catalogued() if tool.definition.name == "web_fetch"]

    assert fetch.is_off
    assert "| `web_fetch` | [tool-web](rows.md#tool-web), bundle `base`, off | `url` |" in PAGE
