"""Which paths count as inside the writable roots of a policy."""

import os
import tempfile
from pathlib import Path

from dsh.capabilities.local_fs.fence import is_contained, writable_roots
from dsh.capabilities.sandbox import SandboxPolicy


def test_only_workspace_write_has_writable_roots(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)

    assert writable_roots(SandboxPolicy("read-only", str(tmp_path))) == ()
    assert writable_roots(SandboxPolicy("danger-full-access", str(tmp_path))) == ()
    expected = (os.path.realpath(tmp_path), os.path.realpath("/tmp"), os.path.realpath(tempfile.gettempdir()))
    assert writable_roots(SandboxPolicy("workspace-write", str(link))) == tuple(dict.fromkeys(expected))


def test_containment_goes_by_spelling_and_by_identity(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "alias").symlink_to("root")

    assert is_contained(str(root), str(root))
    assert is_contained(str(root), str(root / "a" / "b"))
    assert is_contained(str(tmp_path / "alias"), str(root / "a"))
    assert not is_contained(str(root), str(tmp_path / "rootless"))
    assert not is_contained(str(root / "missing"), str(root))
