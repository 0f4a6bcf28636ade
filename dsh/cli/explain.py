"""`dsh explain`: the layers, every row's effective config, and who provides what to whom. Mounts nothing.

Plugins are imported, since only they know their defaults, and what they provide and inject.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsh.cli.directory import enter
from dsh.cli.explain_text import described
from dsh.cli.stream import claim_output
from dsh.composition.compose import compose
from dsh.composition.environment import load_environment
from dsh.composition.explain.gather import explain
from dsh.composition.explain.shape import Explanation, only
from dsh.composition.grammar import closest
from dsh.composition.home import home_path
from dsh.composition.mount.audit import not_loaded
from dsh.composition.mount.facts import Facts
from dsh.composition.mount.plan import Plan
from dsh.composition.profile import open_site
from dsh.errors import UsageError
from dsh.plugins.settings.preview import Preview


def explained(profile: str, patches: Sequence[str], cwd: str, row: str, *, is_json: bool) -> int:
    """Print the explanation of a profile's composition, or of one row of it. Answers the exit code.

    What plugins print while they are imported goes to standard error.

    Raises:
        UsageError: there is no such row, or the directory cannot be entered.
        CompositionError: what a start would refuse before it mounts anything.
        OutputError: standard output cannot be written.
    """
    if not all(patches):
        raise UsageError("--patch FILE needs a value that is not empty", hint="dsh explain --help")
    output = claim_output()
    base = Path.cwd()
    files = [base / patch for patch in patches]
    home = base / home_path()
    if cwd:
        enter(cwd)
    environment, warnings = load_environment(Path.cwd(), home, os.environ)
    composition = compose(profile, files, home)
    open_site(home, profile)
    facts = Facts(home, profile, str(Path.cwd()), environment.mapping())
    plan = Plan(facts, warn=lambda entry, text: warnings.append(f"[{entry}] {text}"))
    entries = plan.entries_of(composition.rows)
    for warning in (*warnings, *composition.warnings):
        output.notice(f"dsh: {warning}")
    if any(not report.is_optional for report in plan.reports):
        raise not_loaded(plan.reports)
    preview = Preview((entry for root in entries for entry in root.walk()), facts)
    found = explain(composition, entries, facts, preview.of)
    if row:
        found = _one(found, row)
    output.answer(_json(found) if is_json else described(found, is_one=bool(row)))
    return 0


def _one(found: Explanation, row: str) -> Explanation:
    known = [known.id for known in found.rows]
    if row not in known:
        gone = next((removed for removed in found.removed if removed.id == row), None)
        if gone is not None:
            raise UsageError(f"row {row!r} is removed at {gone.place.file}:{gone.place.line}")
        similar = closest(row, known)
        hint = f"closest: {', '.join(similar)}" if similar else "dsh explain lists all rows"
        raise UsageError(f"no row {row!r} in profile {found.profile!r}", hint=hint)
    return only(found, row)


def _json(found: Explanation) -> str:
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
