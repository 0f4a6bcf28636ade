"""A runner of the operator's own: any program that takes the arguments of bubblewrap."""

import shutil
from collections.abc import Sequence

from dsh.capabilities.sandbox import BackendReport, Confined, SandboxPolicy
from dsh.plugins.sandbox.backend import Prober
from dsh.plugins.sandbox.bwrap import profile

DENIALS = ("read-only file system", "permission denied")


class ConfiguredRunner:
    """Implements `dsh.plugins.sandbox.backend.Backend`. It is taken at its operator's word: not tried."""

    def __init__(self, command: Sequence[str], failure_signatures: Sequence[str]) -> None:
        self._command = tuple(command)
        self._failure_signatures = tuple(words.lower() for words in failure_signatures)

    @property
    def name(self) -> str:
        return self._command[0]

    async def probe(self, prober: Prober) -> BackendReport:
        if shutil.which(self.name) is None:
            return BackendReport(self.name, None, "there is no such program", "correct sandbox.runnerCommand")
        return BackendReport(self.name, "full", "as its operator says; it is not tried")

    def confine(
        self, argv: Sequence[str], policy: SandboxPolicy, *, cwd: str | None, status_fd: int | None
    ) -> Confined:
        return Confined(
            argv=(*self._command, *profile(policy, cwd=cwd), "--", *argv),
            enforcement="full",
            runner=self.name,
            denial_signatures=DENIALS,
            failure_signatures=self._failure_signatures,
            dies_with_parent=False,
        )
