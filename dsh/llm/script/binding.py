"""Which recorded script answers which live session: live ids are new ones, so order decides."""

from collections.abc import Sequence

from dsh.llm.script.call import check_whole
from dsh.llm.script.error import UNRECORDED_SESSION, ScriptError
from dsh.llm.script.player import Script
from dsh.llm.script.recording import Recording


class Scripts:
    """The scripts of a recorded session and its children. State: who has claimed which.

    Each live session claims the next script at its first call: the parent's first, then those of children by
    the time they were made, ids deciding between equals. Calls without a session share one script.
    """

    def __init__(self, parent: Recording, children: Sequence[Recording] = ()) -> None:
        """
        Raises:
            ScriptError: `SCRIPT_UNFINISHED_CALL`.
        """
        ordered = [parent, *sorted(children, key=lambda child: (child.created_at, child.session_id))]
        for recording in ordered:
            check_whole(recording.calls)
        self._scripts = [Script(recording.calls, name=recording.name) for recording in ordered]
        self._claimed: dict[str | None, Script] = {}

    def of(self, session_id: str | None) -> Script:
        """The script of a live session.

        Raises:
            ScriptError: `SCRIPT_UNRECORDED_SESSION`, there are more sessions than scripts.
        """
        script = self._claimed.get(session_id)
        if script is None:
            number = len(self._claimed)
            if number == len(self._scripts):
                raise ScriptError(
                    UNRECORDED_SESSION,
                    f"a session calls the model that was not recorded; there are recordings of {number}",
                    hint="record the session again, with its children",
                )
            script = self._claimed[session_id] = self._scripts[number]
        return script

    @property
    def sole(self) -> Script | None:
        """The only script, where there is one alone."""
        return self._scripts[0] if len(self._scripts) == 1 else None

    def assert_consumed(self) -> None:
        """Check that every recorded call was made.

        Raises:
            ScriptError: `SCRIPT_UNCONSUMED`.
        """
        for script in self._scripts:
            script.assert_consumed()
