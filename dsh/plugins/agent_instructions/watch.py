"""The instructions of one session: when the files are looked at, and which message has to enter a step.

They are looked at where a turn begins, after a file tool has touched a file, and where the model has lost
sight of them (a summary took their place). What the model knows is read off the messages before it, so a
resumed session goes on where it was.
"""

import json
import posixpath
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dsh.agent.contract import PreStep
from dsh.capabilities.fs import FileSystem, FsError
from dsh.capabilities.sandbox import SandboxPolicy
from dsh.plugins.agent_instructions import change
from dsh.plugins.agent_instructions.known import KIND, Known, Visible, is_instructions
from dsh.plugins.agent_instructions.place import GLOBAL_NAME, Layout, Place, by_breadth
from dsh.plugins.agent_instructions.reading import Library, Looked
from dsh.session.log import Session
from dsh.session.message import Message, text_block, user_message


class Rules(NamedTuple):
    """What the row is configured to look for."""

    max_bytes: int
    max_source_bytes: int
    markers: tuple[str, ...]
    names: tuple[str, ...]
    local_names: tuple[str, ...]
    home: str | None
    """The directory of the file for all projects."""
    global_path: str
    """How that file is shown."""

    def identity(self, layout: Layout) -> str:
        """What a baseline was made by; another one makes a new baseline. The keys stand in this order."""
        keys = {
            "projectRoot": layout.root_from_cwd,
            "projectRootMarkers": self.markers,
            "maxBytes": self.max_bytes,
            "maxSourceBytes": self.max_source_bytes,
            "instructionFileCandidates": self.names,
            "localInstructionFileCandidates": self.local_names,
        }
        return json.dumps(keys, ensure_ascii=False, separators=(",", ":"))


class Watch:
    """State: the layout of the project, what was touched, what was told to people, what is visible."""

    def __init__(self, session: Session, cwd: str, rules: Rules, warn: Callable[[str], None]) -> None:
        self._rules = rules
        self._warn = warn
        self._library = Library(rules.max_source_bytes, rules.global_path)
        self._visible = Visible(session)
        self._layout = Layout(cwd, cwd)
        self._session = session
        self._touched: set[str] = set()
        self._looked_at: tuple[int, int] | None = None
        """Turn and generation of the surface at the last look."""
        self._untold: set[tuple[str, str | None]] = set()
        """Scope and digest of changes for which there is no room."""
        self._warned: set[str] = set()
        self._is_touched = False

    @property
    def is_touched(self) -> bool:
        """Whether a file tool has touched a file since the last look."""
        return self._is_touched

    def touch(self, path: str) -> None:
        """A file tool has succeeded with the file at this absolute path."""
        self._is_touched = True
        self._touched.update(self._layout.below(path))

    async def due(
        self,
        fs: FileSystem,
        step: PreStep,
        entering: Sequence[Message],
        policy: SandboxPolicy | None,
    ) -> Message | None:
        """The message that has to enter the step beside these, None for none.

        Raises:
            FsError: `FS_ABORTED` alone.
        """
        now = (step.turn, self._session.replace_generation)
        if now == self._looked_at and not self._is_touched:
            return None
        known = Known((*self._visible.messages(), *filter(is_instructions, entering)))
        if self._looked_at is None or self._looked_at[0] != step.turn:
            self._layout = await self._find_layout(fs, step)
        look = _Look(fs, step, policy)
        message = await self._compared(look, known)
        self._looked_at, self._is_touched = now, False
        self._touched.clear()
        return message

    async def _compared(self, look: "_Look", known: Known) -> Message | None:
        rules, layout = self._rules, self._layout
        is_moved = known.root not in (None, layout.root_from_cwd)
        told_below = set() if is_moved else layout.nested_of(known.files)
        chain = self._chain()
        nested = [
            Place(directory, (*rules.names, *rules.local_names), is_chosen=False)
            for directory in by_breadth(self._touched | told_below)
        ]
        looked = await self._library.look(
            look.fs, layout, [*chain, *nested], policy=look.policy, signal=look.step.signal
        )
        self._tell_people(looked)
        above, below = looked[: len(chain)], looked[len(chain) :]
        identity = rules.identity(layout)
        if known.identity == identity:
            return self._batch(above, looked, known)
        gone = self._gone(above, known, is_moved=is_moved)
        told = change.baseline(above, known, gone, rules.max_bytes, is_replacement=known.identity is not None)
        later = self._changed(below, known.without(gone))
        batch = change.batch(later, rules.max_bytes) if later else None
        if told is None:
            return None if batch is None else _message({}, batch)
        parts = [told] if batch is None else [told, batch]
        return _message({"baseline": True, "baselineIdentity": identity}, *parts)

    def _batch(self, above: Sequence[Looked], looked: Sequence[Looked], known: Known) -> Message | None:
        """What differs from the baseline and what came after it."""
        changed = self._changed(looked, known)
        if any(one.entry["action"] == "set" for one in changed):
            unfit = change.left_out(above, self._rules.max_bytes)
            changed = [
                one for one in changed if one.entry["action"] != "set" or one.entry["scope"] not in unfit
            ]
        if not changed:
            return None
        told = change.batch(changed, self._rules.max_bytes)
        if told is None:
            self._untold.update(map(_key, changed))
            return None
        return _message({}, told)

    def _changed(self, looked: Sequence[Looked], known: Known) -> list[change.Change]:
        return [one for one in change.changes(looked, known, self._layout) if _key(one) not in self._untold]

    def _gone(self, above: Sequence[Looked], known: Known, *, is_moved: bool) -> list[str]:
        """What the model knows of the places of a baseline and is not there, to be removed by a new one.

        Where the project has another root, a scope that is not of the new baseline means nothing any more.
        """
        there = {one.scope for here in above for one in here.found}
        there |= {one.scope for here in above for one in here.failed}
        missing = [scope for scope in known.files if scope not in there]
        return missing if is_moved else [s for s in missing if not self._layout.nested_of([s])]

    def _chain(self) -> list[Place]:
        rules = self._rules
        out = []
        if rules.home is not None:
            out.append(Place(rules.home, (GLOBAL_NAME,), is_chosen=True, is_global=True))
        names = tuple(dict.fromkeys((*rules.names, *rules.local_names)))
        return [*out, *(Place(directory, names, is_chosen=True) for directory in self._layout.chain())]

    async def _find_layout(self, fs: FileSystem, step: PreStep) -> Layout:
        """The project as it is now; where that cannot be seen, as it was."""
        cwd = self._layout.cwd
        directory = cwd
        while True:
            for marker in self._rules.markers:
                try:
                    entry = await fs.lstat(posixpath.join(directory, marker), signal=step.signal)
                except FsError as error:
                    if error.fs_code == "FS_ABORTED":
                        raise
                    self._warn_once(f"the project of {cwd} may be cut short: {error.message}")
                    return self._layout
                if entry is not None:
                    return Layout(directory, cwd)
            parent = posixpath.dirname(directory)
            if parent == directory:
                return Layout(cwd, cwd)
            directory = parent

    def _tell_people(self, looked: Sequence[Looked]) -> None:
        for here in looked:
            for one in here.failed:
                if one.is_told:
                    self._warn_once(f"the instructions in {one.location} are not loaded: {one.why}")

    def _warn_once(self, problem: str) -> None:
        if problem not in self._warned:
            self._warned.add(problem)
            self._warn(problem)


class _Look(NamedTuple):
    """What a look at the files works with."""

    fs: FileSystem
    step: PreStep
    policy: SandboxPolicy | None


def _key(one: change.Change) -> tuple[str, str | None]:
    return one.entry["scope"], one.entry.get("digest")


def _message(more: dict[str, Any], *parts: change.Told) -> Message:
    """One message of these texts, a block each."""
    source = {
        "kind": KIND,
        "form": "instructions",
        **more,
        "changes": [entry for part in parts for entry in part.entries],
    }
    return user_message([text_block(part.text) for part in parts], source)
