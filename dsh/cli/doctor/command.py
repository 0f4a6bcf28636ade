"""`dsh doctor`: looks at what a profile needs of this machine. Runs no row that acts, and sends nothing."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsh.cli.directory import enter
from dsh.cli.doctor.check import Check, Finding, Surroundings, failed
from dsh.cli.doctor.sandbox import CHECK as SANDBOX
from dsh.cli.doctor.sandbox import examine as examine_sandbox
from dsh.cli.loop import run_to_end
from dsh.cli.stream import claim_output
from dsh.composition.compose import compose
from dsh.composition.environment import load_environment
from dsh.composition.home import home_path
from dsh.composition.mount.audit import not_loaded
from dsh.composition.mount.facts import Facts
from dsh.composition.mount.plan import Plan
from dsh.composition.profile import open_site
from dsh.errors import DshError, UsageError

CHECKS: dict[str, Check] = {SANDBOX: examine_sandbox}
"""In the order in which they are told."""
VERSION = 1
FAILED = 1


def examined(profile: str, patches: Sequence[str], cwd: str, *, is_json: bool) -> int:
    """Examine, print the findings, and answer the exit code: 1 where one of them has failed.

    Raises:
        UsageError: the directory cannot be entered, or a flag has no value.
        CompositionError: the profile does not compose.
        OutputError: standard output cannot be written.
    """
    if not all(patches):
        raise UsageError("--patch FILE needs a value that is not empty", hint="dsh doctor --help")
    output = claim_output()
    base = Path.cwd()
    home = base / home_path()
    files = [base / patch for patch in patches]
    if cwd:
        enter(cwd)
    environment, warnings = load_environment(Path.cwd(), home, os.environ)
    composition = compose(profile, files, home)
    open_site(home, profile)
    facts = Facts(home, profile, str(Path.cwd()), environment.mapping())
    plan = Plan(facts, warn=lambda entry, text: warnings.append(f"[{entry}] {text}"))
    entries = tuple(entry for root in plan.entries_of(composition.rows) for entry in root.walk())
    for warning in (*warnings, *composition.warnings):
        output.notice(f"dsh: {warning}")
    if any(not report.is_optional for report in plan.reports):
        raise not_loaded(plan.reports)
    findings = run_to_end(_findings(Surroundings(entries, facts)), lambda error: None)
    output.answer(as_json(profile, findings) if is_json else as_text(findings))
    return FAILED if _has_failed(findings) else 0


async def _findings(surroundings: Surroundings) -> list[Finding]:
    found: list[Finding] = []
    for name, check in CHECKS.items():
        try:
            found += await check(surroundings)
        except DshError as error:
            found.append(failed(name, "examination", error))
    return found


def _has_failed(findings: Sequence[Finding]) -> bool:
    return any(finding.status == "failed" for finding in findings)


def as_json(profile: str, findings: Sequence[Finding]) -> str:
    """One object; keys are only ever added to it."""
    shape = {
        "version": VERSION,
        "profile": profile,
        "ok": not _has_failed(findings),
        "findings": msgspec.to_builtins(list(findings)),
    }
    return json.dumps(shape, ensure_ascii=False, indent=2) + "\n"


def as_text(findings: Sequence[Finding]) -> str:
    """A paragraph for each examination, a line for each finding, and below it what to do."""
    lines: list[str] = []
    width = max((len(finding.name) for finding in findings), default=0)
    for check in dict.fromkeys(finding.check for finding in findings):
        lines.append(check)
        for finding in findings:
            if finding.check == check:
                lines.append(f"  {finding.status:<7}  {finding.name:<{width}}  {finding.detail}")
                lines += [f"  {'':<7}  {'':<{width}}  hint: {finding.hint}"] if finding.hint else []
    return "\n".join(lines) + "\n"
