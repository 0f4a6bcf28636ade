"""`glob` and `grep` mounted over the real search program or its stand-in."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dsh.capabilities.subprocess import SUBPROCESS
from dsh.plugins import subprocess
from dsh.plugins.tool_fs_search import register
from dsh.plugins.tool_fs_search.config import Config
from dsh.plugins.tool_fs_search.program import FALLBACK_NOTE, Program, SearchProgram, find_program
from tests.plugins.files import FixedPolicy, Kit, mounted

FALLBACK = find_program(path="", interpreter="/nonexistent/python").argv[1:]
PROGRAMS = {"rg": find_program(), "fallback": Program((sys.executable, *FALLBACK), is_fallback=True)}
both = pytest.mark.parametrize("kind", PROGRAMS)


@asynccontextmanager
async def searching(
    workspace: Path,
    kind: str | Program = "rg",
    *rows: tuple[ModuleType, dict[str, Any]],
    policy: FixedPolicy | None = None,
    **config: Any,
) -> AsyncIterator[Kit]:
    """`glob` and `grep` over one of the programs, with more rows."""
    async with mounted(workspace, ((subprocess, {}), *rows), policy=policy) as kit:
        options = Config(**({"sample_over_cap_glob_results": False} | config))
        processes = kit.ctx.get(SUBPROCESS)
        assert processes is not None
        program = PROGRAMS[kind] if isinstance(kind, str) else kind
        register(kit.ctx, SearchProgram(processes, options, program), options)
        yield kit


def plant(root: Path, **files: str | bytes) -> None:
    """Files by path (`__` for `/`, `_dot_` for `.`), each newer than the one before."""
    for age, (name, content) in enumerate(files.items()):
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.utime(path, ns=(age * 10**9, age * 10**9))


async def found(kit: Kit, kind: str, tool: str, **arguments: Any) -> str:
    """The result's text without the note that names the stand-in."""
    text = await kit.text(tool, **arguments)
    return text.removesuffix(f"\n\n({FALLBACK_NOTE})") if kind == "fallback" else text
