"""Explains rows of YAML text, for tests."""

from pathlib import Path

from dsh.composition.compose import Composition
from dsh.composition.explain.gather import explain
from dsh.composition.explain.shape import Explanation, RowInfo
from dsh.composition.mount.facts import Facts
from dsh.composition.mount.plan import Plan
from tests.composition.layers import write
from tests.composition.tree import composition


def explained_composition(made: Composition, folder: Path, env: dict[str, str] | None = None) -> Explanation:
    facts = Facts(folder / "home", made.profile, "/ws", env or {})
    plan = Plan(facts)
    entries = plan.entries_of(made.rows)
    assert not [report for report in plan.reports if not report.is_optional]
    return explain(made, entries, facts)


def explained(folder: Path, *texts: str, env: dict[str, str] | None = None) -> Explanation:
    """What layers of these texts come to; plugin files lie in `folder`."""
    return explained_composition(composition(folder, *texts), folder, env)


def row_of(found: Explanation, row_id: str) -> RowInfo:
    return next(row for row in found.rows if row.id == row_id)


def plugin(folder: Path, name: str, *, inject: str = "", provide: str | None = "", config: str = "") -> str:
    """A plugin file that declares these services (blank-separated); answers its row, without id."""
    lines = ["import msgspec", f"inject = {inject.split()}"]
    if provide is not None:
        lines.append(f"provide = {provide.split()}")
    if config:
        lines += ["class Config(msgspec.Struct, forbid_unknown_fields=True, rename='camel', kw_only=True):"]
        lines += [f"    {line}" for line in config.splitlines()]
    lines += ["def apply(ctx, config=None):", "    raise AssertionError('nothing is mounted')"]
    write(folder / f"{name}.py", "\n".join(lines) + "\n")
    return f"name: ./{name}.py"
