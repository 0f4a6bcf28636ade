"""The table of escapes: what a command tries, how it shows that it came through, and where it does.

A command prints ESCAPED when it came through, unless what it changed outside shows it. `open_in` holds the
backends that do not stop it; each entry is documented in `docs/sandbox.md`.
"""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.contract.sandbox.place import Place

ESCAPED = "ESCAPED"
BWRAP, LANDLOCK = "bwrap", "landlock"


def nothing(place: Place) -> None:
    """No preparation."""


@dataclass(frozen=True)
class Escape:
    """One way out."""

    name: str
    command: str
    """`OUT`, `VICTIM`, `N` are the place's; `PARENT` is this process."""
    open_in: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Programs without which it cannot be tried."""
    policy: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Place], None] = nothing
    came_through: Callable[[Place], bool] = lambda place: not place.is_untouched()
    least_abi: int = 1
    """Landlock stops it from this version on."""
    is_harmless: bool = True
    """It may be tried without walls, where it comes through everywhere: that shows that it is a way out."""


def _unix(place: Place, folder: str) -> None:
    path = f"{folder}/dsh-{place.number}.sock"
    place.listen(path)
    Path(path).chmod(0o777)


def _protected(place: Place) -> None:
    (place.ws / ".git" / "hooks").mkdir(parents=True)
    (place.ws / ".dsh").mkdir()


def _plants(*names: str) -> Callable[[Place], bool]:
    return lambda place: any((place.ws / name).exists() for name in names)


def _perl(call: str) -> str:
    return f"perl -MSocket -e '{call} and print \"{ESCAPED}\"'"


def _connect(address: str) -> str:
    return _perl(f'socket(S,AF_UNIX,SOCK_STREAM,0) and connect(S,sockaddr_un("{address}"))')


def _made_segment(place: Place) -> bool:
    rows = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    made = [row[1] for row in rows if row[3] == str(place.size)]
    for number in made:
        subprocess.run(["ipcrm", "-m", number], check=True)
    return bool(made)


ESCAPES = (
    # files by their names
    Escape("a path outside", "echo x > OUT/new"),
    Escape("a path with ..", "echo x > ../new"),
    Escape("a link to a directory outside", "echo x > out/new"),
    Escape("a link made by the command", "ln -s OUT/file mine; echo x > mine"),
    Escape("emptying a file", "truncate -s 0 OUT/file", least_abi=3),
    Escape("removing a file", "rm -f OUT/file"),
    Escape("moving a file in", "mv OUT/file ./taken"),
    Escape("moving a file out", "echo x > mine; mv mine OUT/new"),
    Escape("a hard link to what lies outside", "ln OUT/file mine && echo x > mine"),
    Escape("a hard link that was there before", "echo x > linked", open_in=(BWRAP, LANDLOCK)),
    Escape("mode of a file outside", "chmod 600 OUT/file", open_in=(LANDLOCK,)),
    Escape("times of a file outside", "touch -c -d @1 OUT/file", open_in=(LANDLOCK,)),
    Escape("a directory outside", "mkdir OUT/new"),
    Escape("a child of a child", "bash -c 'bash -c \"echo x > OUT/new\"'"),
    Escape("what runs on", "(sleep 0.2; echo x > OUT/new) & wait"),
    Escape(
        "the host's /tmp",
        "echo x > /tmp/dsh-N",
        came_through=lambda place: Path(f"/tmp/dsh-{place.number}").exists(),
    ),
    Escape(
        "the host's /var/tmp",
        "echo x > /var/tmp/dsh-N",
        came_through=lambda place: Path(f"/var/tmp/dsh-{place.number}").exists(),
    ),
    Escape(
        "the host's /dev/shm",
        "echo x > /dev/shm/dsh-N",
        open_in=(LANDLOCK,),
        came_through=lambda place: Path(f"/dev/shm/dsh-{place.number}").exists(),
    ),
    # what is obeyed later
    Escape(
        "a hook of git",
        "echo x > .git/hooks/pre-commit",
        open_in=(LANDLOCK,),
        prepare=_protected,
        came_through=_plants(".git/hooks/pre-commit"),
    ),
    Escape(
        "the project's own settings of dsh",
        "echo x > .dsh/x",
        open_in=(LANDLOCK,),
        prepare=_protected,
        came_through=_plants(".dsh/x"),
    ),
    Escape(
        "another folder in the place of .git",
        "mv .git old && mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
        open_in=(BWRAP, LANDLOCK),
        prepare=_protected,
        came_through=_plants(".git/hooks/pre-commit"),
    ),
    Escape(
        "a hook of git where there is no folder for hooks yet",
        "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
        open_in=(BWRAP, LANDLOCK),
        came_through=_plants(".git/hooks/pre-commit"),
    ),
    Escape(
        "settings of dsh where the project has none yet",
        "mkdir .dsh && echo x > .dsh/x",
        open_in=(BWRAP, LANDLOCK),
        came_through=_plants(".dsh/x"),
    ),
    # what may not be read
    Escape(
        "a hidden file",
        "grep -q hush OUT/secret && echo ESCAPED",
        policy={"hiddenPaths": ["OUT/secret"]},
    ),
    Escape("the environment of a stranger", "grep -qa hush /proc/VICTIM/environ && echo ESCAPED"),
    Escape("the environment of dsh", "cat /proc/PARENT/environ > /dev/null && echo ESCAPED"),
    # /proc and /sys
    Escape("the root of a process outside", "echo x > /proc/VICTIM/root/OUT/new"),
    Escape("the root of the first process", "echo x > /proc/1/root/OUT/new", is_harmless=False),
    Escape("its own root", "echo x > /proc/self/root/OUT/new"),
    Escape("the directory of a process outside", "echo x > /proc/VICTIM/cwd/dsh-N && echo ESCAPED"),
    Escape(
        "settings of the kernel",
        "v=$(< /proc/sys/vm/swappiness); echo $v > /proc/sys/vm/swappiness && echo ESCAPED",
    ),
    Escape("the magic key", "exec 3> /proc/sysrq-trigger && echo ESCAPED", is_harmless=False),
    Escape(
        "control groups",
        "mkdir /sys/fs/cgroup/dsh-N /sys/fs/cgroup/unified/dsh-N && echo ESCAPED",
        is_harmless=False,
    ),
    # other processes
    Escape("a signal to a stranger", "kill -KILL VICTIM && echo ESCAPED", least_abi=6),
    Escape("a signal to dsh", "kill -0 PARENT && echo ESCAPED", least_abi=6),
    Escape("the memory of a stranger", "exec 3<> /proc/VICTIM/mem && echo ESCAPED"),
    Escape("a terminal", "exec 3<> /dev/tty && echo ESCAPED", is_harmless=False),
    # mounts, namespaces, privileges
    Escape(
        "a remount", "mount -o remount,bind,rw / && echo x > OUT/new", needs=("mount",), is_harmless=False
    ),
    Escape("a mount", "mkdir m; mount -t tmpfs none m && echo ESCAPED", needs=("mount",), is_harmless=False),
    Escape(
        "an umount",
        "umount -l OUT/ws || umount -l /proc/sys && echo ESCAPED",
        needs=("umount",),
        is_harmless=False,
    ),
    Escape(
        "a namespace inside",
        "unshare --user --map-root-user --mount bash -c 'mount -o remount,bind,rw /; mount -o remount,rw /; "
        "umount -l /tmp; echo x > OUT/new'",
        needs=("unshare", "mount"),
        is_harmless=False,
    ),
    Escape("privileges of a program", "grep -q 'NoNewPrivs:.*0' /proc/self/status && echo ESCAPED"),
    Escape("a device file", "mknod d b 254 0 && echo ESCAPED"),
    Escape(
        "the capabilities of root",
        "while read -r k v; do [ $k = CapEff: ] && e=$v; done < /proc/self/status; "
        "[ $((0x$e & ~0xb)) = 0 ] || echo ESCAPED",
    ),
    # sockets, keys, shared memory
    Escape(
        "a socket in /tmp",
        _connect("/tmp/dsh-N.sock"),
        open_in=(LANDLOCK,),
        needs=("perl",),
        prepare=lambda place: _unix(place, "/tmp"),
    ),
    Escape(
        "a socket elsewhere",
        _connect("OUT/ws/../dsh-N.sock"),
        open_in=(BWRAP, LANDLOCK),
        needs=("perl",),
        prepare=lambda place: _unix(place, str(place.outside)),
        came_through=lambda place: False,
    ),
    Escape(
        "an abstract socket",
        _connect("\\0dsh-N"),
        open_in=(BWRAP,),
        needs=("perl",),
        prepare=lambda place: place.listen(f"\0dsh-{place.number}"),
        least_abi=6,
    ),
    Escape(
        "an abstract socket with the network closed",
        _connect("\\0dsh-N"),
        needs=("perl",),
        policy={"network": False},
        prepare=lambda place: place.listen(f"\0dsh-{place.number}"),
        least_abi=6,
    ),
    Escape(
        "a connection with the network closed",
        "exec 3<> /dev/tcp/127.0.0.1/PORT && echo ESCAPED",
        policy={"network": False},
        least_abi=4,
    ),
    Escape(
        "a datagram with the network closed",
        "echo x > /dev/udp/127.0.0.1/PORT",
        open_in=(LANDLOCK,),
        policy={"network": False},
        came_through=lambda place: place.has_datagram(),
        least_abi=4,
    ),
    Escape(
        "a key in the kernel's keyring",
        "perl -e '($t,$n,$v)=(qw(user dsh-N x)); print q(ESCAPED) if syscall(248,$t,$n,$v,1,-4)>0'",
        open_in=(BWRAP, LANDLOCK),
        needs=("perl", "x86_64"),
    ),
    Escape(
        "a segment of shared memory",
        "ipcmk -M SIZE",
        open_in=(LANDLOCK,),
        needs=("ipcmk", "ipcrm"),
        came_through=_made_segment,
    ),
)
