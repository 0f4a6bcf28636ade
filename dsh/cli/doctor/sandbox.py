"""Whether commands can be confined here: each backend tried, and what the profile asks for."""

from dsh.capabilities.headless import HEADLESS_STARTUP, HeadlessOptions
from dsh.capabilities.sandbox import SANDBOX, BackendReport, Sandbox, SandboxMode, SandboxUnavailable
from dsh.cli.doctor.check import Finding, Surroundings, failed
from dsh.errors import DshError
from dsh.kernel import Context
from dsh.plugins import sandbox, sandbox_policy, subprocess

CHECK = "sandbox"
MODE = "mode"
FULL_ACCESS = "danger-full-access"


async def examine(surroundings: Surroundings) -> list[Finding]:
    """One finding for each backend, and one for the mode of new sessions."""
    row, policy = surroundings.row(sandbox), surroundings.row(sandbox_policy)
    if row is None:
        return [Finding(CHECK, "row", "warning", "no row of the profile confines commands")]
    ctx = Context()
    try:
        ctx.provide(HEADLESS_STARTUP, HeadlessOptions("-"))  # what rows ask for flags
        config = surroundings.config(row, ctx)
        await ctx.plugin(subprocess)
        await ctx.plugin(sandbox, config)
        service = ctx.get(SANDBOX)
        assert service is not None
        findings = [_backend(report) for report in await service.backends()]
        if policy is not None:
            try:
                wanted = surroundings.config(policy, ctx)
                sandbox_policy.policies_of(wanted, service)
            except DshError as error:
                return [*findings, failed(CHECK, MODE, error)]
            findings.append(await _mode(service, wanted.mode, stops_start=config.check_at_start))
        return findings
    finally:
        await ctx.dispose()


def _backend(report: BackendReport) -> Finding:
    if report.enforcement is None:
        return Finding(CHECK, report.name, "warning", f"does not work: {report.reason}", report.hint)
    reason = f": {report.reason}" if report.reason else ""
    return Finding(CHECK, report.name, "ok", f"works, {report.enforcement}{reason}")


async def _mode(service: Sandbox, mode: SandboxMode, *, stops_start: bool) -> Finding:
    if mode == FULL_ACCESS:
        return Finding(CHECK, MODE, "ok", f"{mode}: nothing is confined in new sessions")
    try:
        chosen = await service.chosen(mode)
    except SandboxUnavailable as error:
        if stops_start:
            return failed(CHECK, MODE, error)
        return Finding(CHECK, MODE, "warning", f"commands will be refused: {error.message}", error.hint)
    return Finding(CHECK, MODE, "ok", f"{mode}, kept by {chosen}")
