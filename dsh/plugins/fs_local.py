"""Row `fs-local`: this machine's files without a fence. The one-row alternative to `fs-sandbox`."""

from dsh.capabilities.fs import FS
from dsh.capabilities.local_fs.provider import FsConfig, LocalFileSystem
from dsh.kernel import Context

provide = [FS]

Config = FsConfig


def apply(ctx: Context, config: FsConfig) -> None:
    ctx.provide(FS, LocalFileSystem(config))
