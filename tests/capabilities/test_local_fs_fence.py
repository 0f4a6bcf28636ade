"""Which paths count as inside the writable roots of a policy."""

import os
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.local_fs.fence import is_contained, may_change, protected_paths, writable_roots
from dsh.capabilities.sandbox import SandboxPolicy


def test_only_workspace_write_has_writable_roots(tmp_path: Path) -> None:
    more: dict[str, Any] = {"temp_folder": "/tmp/own", "extra_roots": ("/srv/a", "/srv/b", "/srv/a")}

    assert writable_roots(SandboxPolicy("read-only", str(tmp_path), **more)) == ()
    assert writable_roots(SandboxPolicy("danger-full-access", str(tmp_path), **more)) == ()
    expected = (str(tmp_path), "/srv/a", "/srv/b", "/tmp/own")
    assert writable_roots(SandboxPolicy("workspace-write", str(tmp_path), **more)) == expected


@pytest.mark.parametrize(
    ("path", "is_free"),
    [
        ("a.txt", True),
        (".git/config", True),
        (".git/hooks", False),
        (".git/hooks/pre-commit", False),
        (".git/hooks2", True),
        (".dsh/skills/x", False),
        (".dshrc", True),
        ("sub/.dsh/x", True),
        ("kept/x", False),
        ("secret/x", False),
        ("../outside", False),
    ],
)
def test_what_is_obeyed_later_is_protected_and_what_is_hidden_is_not_written(
    tmp_path: Path, path: str, is_free: bool
) -> None:
    root = tmp_path / "root"
    policy = SandboxPolicy(
        "workspace-write",
        str(root),
        hidden_paths=(str(root / "secret"),),
        protected_paths=(str(root / "kept"),),
    )

    assert may_change(policy, os.path.normpath(root / path)) == is_free


def test_a_directory_that_may_be_changed_is_not_protected_as_a_whole(tmp_path: Path) -> None:
    policy = SandboxPolicy(
        "workspace-write", str(tmp_path / "a" / "b"), protected_paths=(str(tmp_path / "a"),)
    )
    itself = SandboxPolicy("workspace-write", str(tmp_path), protected_paths=(str(tmp_path),))

    assert may_change(policy, str(tmp_path / "a" / "b" / "x")) and may_change(itself, str(tmp_path / "x"))


def test_protection_follows_a_link_that_leads_into_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / ".dsh").symlink_to("real")
    policy = SandboxPolicy("workspace-write", str(tmp_path))

    assert not may_change(policy, str(tmp_path / "real" / "x"))
    assert may_change(policy, str(tmp_path / "other"))


def test_the_extra_roots_are_protected_alike_and_the_temporary_folder_is_free() -> None:
    policy = SandboxPolicy("workspace-write", "/w", temp_folder="/t/own", extra_roots=("/x",))

    assert protected_paths(policy) == ("/w/.git/hooks", "/w/.dsh", "/x/.git/hooks", "/x/.dsh")
    assert may_change(policy, "/t/own/.dsh/x") and not may_change(policy, "/t/other")
    assert protected_paths(SandboxPolicy("danger-full-access", "/w")) == ()
    assert may_change(SandboxPolicy("danger-full-access", "/w"), "/etc/x")


def test_containment_goes_by_spelling_and_by_identity(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "alias").symlink_to("root")

    assert is_contained(str(root), str(root))
    assert is_contained(str(root), str(root / "a" / "b"))
    assert is_contained(str(root), str(tmp_path / "other" / ".." / "root" / "a"))
    assert not is_contained(str(tmp_path / "alias"), str(root / "a"))
    assert not is_contained(str(root), str(tmp_path / "rootless"))
    assert not is_contained(str(root / "missing"), str(root))
