"""The guard: a small shell process that outlives a kill of this program just long enough to end its children.

A parent-death signal reaches a child, not what the child has started, and a runner may be caught between its
halves. So the guard is told over a pipe which sessions live. When the pipe ends, this program is dead, in
whatever way, and the guard sends SIGKILL to every process group of the sessions that were not taken back.

A number may have become another's by then. A session is ours while its leader, or one of the members that we
have told, is there with the time it started. A leader that we had not waited for kept its number until we
died; if it is gone since, what is in its session is ours too. What made itself a session of its own lives on.

The guard takes about a megabyte and starts with the first child, in less than a millisecond. It leads its own
session, holds no stream of ours and no secret, and is ended and waited for at the interpreter's exit. Only
Linux has what it needs.
"""

import atexit
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable

SHELL = "/bin/sh"
MOST_TOLD = 64
"""Members that are named to the guard; a line that is longer than the pipe takes at once could be torn."""
ROUNDS = 20
"""How often the guard looks at most. What was being started while it looked is seen the next time."""

SCRIPT = f"""
trap '' HUP INT QUIT TERM
live= pipe=
while read -r session members; do
  if [ "$session" = pipe ]; then pipe=$members; continue; fi
  rest=
  for each in $live; do [ "$each" = "$session" ] || rest="$rest $each"; done
  live=$rest
  if [ "$members" ]; then live="$live $session"; eval "of_$session=\\$members"; else unset "of_$session"; fi
done
look() {{
  line=
  while IFS= read -r part; do line=$line$part; done < "/proc/$1/stat" || return 1
  set -- ${{line##*) }}
  state=$1 group=$3 session=$4 start=${{20}}
  [ "$start" ]
}}
ours=' '
while read -r row; do
  case $row in *" -> pipe:[$pipe]") ;; *) continue ;; esac
  each=${{row##* /proc/}}
  look "${{each%%/*}}" && [ "$session" -gt 1 ] && [ "$session" != "$1" ] && ours="$ours$session "
done << END
$([ "$pipe" ] && ls -l /proc/[0-9]*/fd/1)
END
for each in $live; do
  eval "set -- \\$of_$each"
  if [ "$1" = "$each" ] && {{ ! look "$each" || [ "$start" = "$2" ]; }}; then ours="$ours$each "; fi
  while [ "$2" ]; do
    if look "$1" && [ "$session" = "$each" ] && [ "$start" = "$2" ]; then ours="$ours$each "; break; fi
    shift 2
  done
done
left={ROUNDS} empty=0
while [ "$left" != 0 ] && [ "$empty" != 2 ] && [ "$ours" != ' ' ]; do
  left=$((left - 1)) empty=$((empty + 1))
  for each in $ours; do kill -s KILL -- "-$each"; done
  for each in /proc/[0-9]*; do
    look "${{each#/proc/}}" || continue
    case $state in [ZX]*) continue ;; esac
    case $ours in *" $session "*) empty=0; kill -s KILL -- "-$group" ;; esac
  done
done
"""

_told: dict[int, str] = {}
"""By session: the line that makes the guard watch it."""
_running: "subprocess.Popen[bytes] | None" = None


def start() -> None:
    """See that a guard runs. Cheap when it does. Where none can be had, children are on their own."""
    global _running
    if sys.platform != "linux" or (_running is not None and _running.poll() is None):
        return
    try:
        _running = subprocess.Popen(
            [SHELL, "-c", SCRIPT, "guard", str(os.getsid(0))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
            cwd="/",
            env={},
        )
        assert _running.stdin is not None
        os.set_blocking(_running.stdin.fileno(), False)
    except OSError:
        _running = None
    for line in tuple(_told.values()):
        _tell(line)


def expect(stdout: int) -> None:
    """A child is about to be started whose output is this pipe: end it, too, if we die before it is watched.

    The guard does not see us end before the child runs its program, in its own session: until then it holds
    our side of the guard's pipe.
    """
    _tell(f"pipe {os.fstat(stdout).st_ino}\n")


def watch(session: int, members: Iterable[tuple[str, int]]) -> None:
    """End this session with us. It is known by these members: process id, and start time as in /proc."""
    words = [f"{pid} {start}" for pid, start in members][:MOST_TOLD]
    line = f"{session} {' '.join(words)}\n"
    if words and _told.get(session) != line:
        _told[session] = line
        _tell(line)


def forget(session: int) -> None:
    """The session is over. Safe from any thread."""
    if _told.pop(session, None) is not None:
        _tell(f"{session}\n")


def _tell(line: str) -> None:
    """A guard that does not listen is started anew before the next child."""
    if _running is not None and _running.stdin is not None:
        with contextlib.suppress(OSError, ValueError):
            os.write(_running.stdin.fileno(), line.encode())


def _stop(owner: int) -> None:
    if _running is not None and _running.stdin is not None and os.getpid() == owner:
        _running.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            _running.wait(1)


atexit.register(_stop, os.getpid())
