"""Starts a program that dies with us and, where asked, walls it in with Landlock (`design.md` §10.28).

This file is also the program that does it, run by its path as `python -I -S launcher.py [OPTION…] -- ARGV…`,
so it imports nothing but the standard library, and little of that. `command` builds such a command line.

    --parent PID      die when that process dies
    --terminal        take the terminal on standard input as the one that controls the session
    --status FD       say there what becomes of the start (`read_status`); else on standard error
    --ro PATH         wall in: this path and what is below may be read and executed
    --ro-try PATH     the same, but a path that is not there is left out
    --rw PATH         wall in: this path and what is below may be changed, too
    --no-network      wall in: no TCP connection and no listening socket
    --probe           print how much of the walls this system has, `landlock: ABI N`, and end

What cannot be done ends with exit code 125 and one line `landlock-run: …`, before the program has run.
"""

import errno
import os
import sys

EXIT_CODE = 125
PREFIX = "landlock-run: "
PROBE_PREFIX = "landlock: ABI "
READY = b"ready\n"
KNOWN_ABI = 6

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV
_READING = EXECUTE | READ_FILE | READ_DIR
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_CHANGING = ~(_MAKE_CHAR | _MAKE_BLOCK)
"""Everything but making device files, through which root would reach what lies outside."""
_KEPT_CAPABILITIES = (0, 1, 3)
"""Of root's: CHOWN, DAC_OVERRIDE, FOWNER, to work on other users' files where it may write at all."""
_TCP = 0b11
_SCOPES = 0b11
"""Abstract sockets and signals: neither leaves the walls."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_SIGKILL, _SIGPIPE, _SIGXFSZ = 9, 13, 25
"""The module `signal` would be most of what a start costs."""


def command(
    argv: "list[str] | tuple[str, ...]",
    *,
    status_fd: int | None = None,
    readable: "tuple[str, ...]" = (),
    readable_if_there: "tuple[str, ...]" = (),
    writable: "tuple[str, ...]" = (),
    is_network_open: bool = True,
    has_terminal: bool = False,
) -> list[str]:
    """The command line that runs `argv` as a child of this process that dies with it.

    Without paths nothing is walled in. `status_fd` must be inherited by the child (`pass_fds`).
    """
    words = [*_program(), "--parent", str(os.getpid())]
    if status_fd is not None:
        words += ["--status", str(status_fd)]
    if has_terminal:
        words.append("--terminal")
    for path in readable:
        words += ["--ro", path]
    for path in readable_if_there:
        words += ["--ro-try", path]
    for path in writable:
        words += ["--rw", path]
    if not is_network_open:
        words.append("--no-network")
    return [*words, "--", *argv]


def probe_command() -> list[str]:
    """The command line that prints `PROBE_PREFIX` and the version of Landlock, 0 where there is none."""
    return [*_program(), "--probe"]


def _program() -> list[str]:
    interpreter = os.path.realpath(sys.executable) if sys.executable else "python3"
    return [interpreter, "-I", "-S", os.path.abspath(__file__)]  # noqa: PTH100 - this file is a program


def read_status(raw: bytes) -> str | None:
    """What a start came to, by all that was written to `--status`: None when the program was started.

    Otherwise why it was not, in a sentence without a full stop.
    """
    if raw == READY:
        return None
    text = raw.removeprefix(READY).decode("utf-8", "replace").strip()
    return text.removeprefix(PREFIX) or "it was ended before it had started the command"


class _Failure(Exception):
    """Why the program cannot be started."""


def _main(words: list[str]) -> None:
    paths: list[tuple[int, str, bool]] = []
    parent, status, is_walled, has_network, has_terminal = 0, -1, False, True, False
    while words and words[0] != "--":
        option = words.pop(0)
        if option == "--probe":
            sys.stdout.write(f"{PROBE_PREFIX}{_abi()}\n")
            raise SystemExit(0)
        if option == "--terminal":
            has_terminal = True
            continue
        if option == "--no-network":
            is_walled, has_network = True, False
            continue
        if option not in ("--parent", "--status", "--ro", "--ro-try", "--rw") or not words:
            raise _Failure(f"cannot read the option {option!r}")
        value = words.pop(0)
        if option in ("--ro", "--ro-try", "--rw"):
            is_walled = True
            rights = _CHANGING if option == "--rw" else _READING
            paths.append((rights, value, option == "--ro-try"))
        elif not value.isdecimal():
            raise _Failure(f"{option} takes a number, found {value!r}")
        elif option == "--parent":
            parent = int(value)
        else:
            status = int(value)
    argv = words[1:]
    tell = os.dup(2) if status < 0 else status
    os.set_inheritable(tell, False)
    try:
        if not argv:
            raise _Failure("no program is named after --")
        if parent:
            _die_with(parent)
        if has_terminal:
            _take_terminal()
        import warnings  # noqa: F401 - os.execvpe wants it, and behind the walls it may be hidden

        if is_walled:
            _wall_in(paths, has_network)
        if status >= 0:
            os.write(status, READY)
        _run(argv)
    except _Failure as failure:
        os.write(tell, f"{PREFIX}{failure}\n".encode("utf-8", "surrogateescape"))
        raise SystemExit(EXIT_CODE) from None


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        _call("prctl", _PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise _Failure("the program that started it has ended")


def _take_terminal() -> None:
    import fcntl
    import termios

    try:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    except OSError as error:
        raise _Failure(f"the terminal cannot be taken: {error.strerror}") from None


def _abi() -> int:
    """The version of Landlock, 0 where there is none."""
    return max(0, _syscall(_CREATE_RULESET, None, 0, 1))


def _wall_in(paths: "list[tuple[int, str, bool]]", has_network: bool) -> None:
    abi = min(_abi(), KNOWN_ABI) if sys.platform == "linux" else 0
    if abi < 1:
        raise _Failure("this system does not enforce Landlock")
    handled = (1 << 13) - 1
    handled |= (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0) | (_IOCTL_DEV if abi >= 5 else 0)
    network = _TCP if abi >= 4 and not has_network else 0
    attributes = [handled, network, _SCOPES if abi >= 6 else 0][: 1 if abi < 4 else 2 if abi < 6 else 3]
    raw = b"".join(value.to_bytes(8, sys.byteorder) for value in attributes)
    ruleset = _syscall(_CREATE_RULESET, raw, len(raw), 0)
    if ruleset < 0:
        raise _Failure(f"no ruleset could be made: {_reason()}")
    for rights, path, may_be_missing in paths:
        _allow(ruleset, handled & rights, path, may_be_missing)
    if os.geteuid() == 0:
        _drop_capabilities()
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if _syscall(_RESTRICT_SELF, ruleset, 0) < 0:
        raise _Failure(f"the rules were not taken: {_reason()}")
    os.close(ruleset)


def _drop_capabilities() -> None:
    """What root could get at the next program start, all but a few. The numbers have no known end."""
    for number in range(64):
        if number in _KEPT_CAPABILITIES:
            continue
        try:
            _call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
        except _Failure:
            if _errno() == errno.EINVAL:  # beyond the last one
                return
            raise


def _allow(ruleset: int, rights: int, path: str, may_be_missing: bool) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if may_be_missing:
            return
        raise _Failure(f"cannot open the path of a rule, {path!r}: {error.strerror}") from None
    if not os.path.isdir(path):  # noqa: PTH112
        rights &= _ON_FILES
    raw = rights.to_bytes(8, sys.byteorder) + beneath.to_bytes(4, sys.byteorder)
    if _syscall(_ADD_RULE, ruleset, 1, raw, 0) < 0:
        raise _Failure(f"no rule could be made for {path!r}: {_reason()}")
    os.close(beneath)


def _run(argv: list[str]) -> None:
    for number in (_SIGPIPE, _SIGXFSZ):  # what the interpreter has changed at its start
        _call("signal", number, 0)
    environment = dict(os.environb)
    if not _was_given(b"LC_CTYPE"):
        environment.pop(b"LC_CTYPE", None)
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        raise _Failure(f"cannot start {argv[0]!r}: {error.strerror}") from None


def _was_given(name: bytes) -> bool:
    """Whether a variable came from outside; in a bare locale the interpreter sets `LC_CTYPE` itself."""
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
            return any(entry.startswith(name + b"=") for entry in file.read().split(b"\0"))
    except OSError:
        return True


def _syscall(number: int, *arguments: "int | bytes | None") -> int:
    import ctypes

    # Numbers go in as longs: a plain int argument leaves the upper half of its register undefined.
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return int(library.syscall(ctypes.c_long(number), *words))


def _call(name: str, *arguments: int) -> None:
    import ctypes

    if getattr(ctypes.CDLL(None, use_errno=True), name)(*map(ctypes.c_ulong, arguments)) < 0:
        raise _Failure(f"{name} failed: {_reason()}")


def _reason() -> str:
    return os.strerror(_errno())


def _errno() -> int:
    import ctypes

    return ctypes.get_errno()


if __name__ == "__main__":
    try:
        _main(sys.argv[1:])
    except _Failure as failure:
        sys.stderr.write(f"{PREFIX}{failure}\n")
        raise SystemExit(EXIT_CODE) from None
