"""Files that a person may mean by `@path` in a prompt, as a service for front ends that complete it."""

from typing import Protocol

import msgspec

from dsh.kernel import ServiceKey


class FileCandidate(msgspec.Struct, frozen=True, rename="camel"):
    """One file or directory."""

    path: str
    """Relative to the working directory, `/` between names."""
    is_directory: bool

    @property
    def reference(self) -> str:
        """What stands in the prompt: `@path`, quoted where the path has a blank or a quote in it."""
        if not any(char.isspace() or char == '"' for char in self.path):
            return f"@{self.path}"
        return f'@"{self.path}"'


class FileReferences(Protocol):
    """The service."""

    async def search(self, query: str, cwd: str) -> tuple[FileCandidate, ...]:
        """What fits the text behind the `@`, best first. Empty where nothing does; never raises."""


FILE_REFERENCES: ServiceKey[FileReferences] = ServiceKey("fileReferences")
