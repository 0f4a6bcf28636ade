"""Applies patch layers to rows: the original's grammar and our extensions, in one pass.

The algorithm is that of `spec/composition.md` §4; mounting and dumping share it. What a layer changed is
kept on the rows themselves, since rows can be removed and placed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dsh.composition.grammar import adopt_children, check_tree, closest
from dsh.composition.plugin_name import normalise
from dsh.composition.row import Change, Patch, Row, RowError
from dsh.composition.value import Map, Mark, copied, quoted

LayerKind = Literal["bundle", "profile", "home", "patch", "launcher"]


class Layer(NamedTuple):
    """The patches of one source."""

    label: str
    """Bundle name, absolute path of a user's file, or `<launcher>`."""
    patches: list[Patch]
    kind: LayerKind = "patch"
    path: Path | None = None
    """The file it was read from; None for what the launcher adds."""


class Warned(NamedTuple):
    """A patch that found nothing to change, or a field that means nothing.

    `str()` gives `[<layer>] patch: entry "x" not found …`.
    """

    label: str
    text: str

    def __str__(self) -> str:
        return f"[{self.label}] {self.text}"


class Removed(NamedTuple):
    """A row that a patch took out, and the patch."""

    row: Row
    change: Change


def apply_layers(layers: list[Layer], removed: list[Removed] | None = None) -> tuple[list[Row], list[Warned]]:
    """The rows that the layers make, low to high. The layers themselves are never changed.

    Args:
        removed: gets the rows that patches took out, those inside a group after it.

    Raises:
        CompositionError: an id stands twice, a group holds no list of rows, or a patch with
            `require: true` missed.
    """
    tree = _Tree()
    for layer in layers:
        tree.apply(layer)
    check_tree(tree.rows)
    if removed is not None:
        removed.extend(tree.removed)
    return tree.rows, tree.warnings


MAX_GROUPS = 32
"""How many groups inserts may put inside each other; a file of its own adds what its nesting allows."""
MAX_COMPARED = 100_000
"""How many ids may be looked at, in all, for those that are like one that is missed."""
_RESHAPING = frozenset(["config", "merge", "group"])
"""Keys of a patch after which a row may hold rows that it did not hold before."""
_FRAMING = ("id", "name", "insert", "merge", "remove", "require", "before", "after")
"""Keys of a patch that are never assigned to a row."""


class _Place(NamedTuple):
    row: Row
    siblings: list[Row]
    top: Row
    """The top-level row that the row is, or is inside of."""
    depth: int
    """In how many groups it is."""


class _Tree:
    """The rows so far, and where each id stands."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.warnings: list[Warned] = []
        self.removed: list[Removed] = []
        self._index: dict[str, _Place] = {}
        self._label = ""
        self._compared = 0
        self._before: dict[int, tuple[Row, str]] = {}
        self._replaced: dict[int, tuple[Row, Any]] = {}

    def apply(self, layer: Layer) -> None:
        self._label = layer.label
        self._before, self._replaced = {}, {}
        for patch in layer.patches:
            if patch.get("insert") is not None:
                self._insert(patch)
            else:
                self._patch(patch)
        for row, before in self._before.values():
            if row.origin != layer.label and repr(row) != before:
                row.patched.append(layer.label)
        for row, config in self._replaced.values():
            row.dropped.extend((layer.label, path) for path in _lost(config, row.config))

    # -- one patch -------------------------------------------------------------------------------

    def _insert(self, patch: Patch) -> None:
        rows: list[Row] = copied(patch["insert"])
        for row in rows:
            self._name_origin(row)
        target: list[Row] = self.rows
        top: Row | None = None
        depth = 0
        if patch.get("id"):
            place = self._find(patch, "patch insert")
            if place is None:
                return
            if not place.row.is_group:
                self._missed(patch, f"patch insert: entry {quoted(patch['id'])} is not a group")
                return
            depth = place.depth + 1
            if depth > MAX_GROUPS:
                raise RowError(f"more than {MAX_GROUPS} groups inside each other", patch.mark)
            self._note(place.top)
            self._record(place.row, patch)
            if not isinstance(place.row.config, list):
                place.row["config"] = []
            target, top = place.row["config"], place.top
        at = self._position(patch, target)
        target[at:at] = rows
        self._visit(rows, target, top, depth)

    def _position(self, patch: Patch, target: list[Row]) -> int:
        anchor = patch.get("before") or patch.get("after")
        if not anchor:
            return len(target)
        if (place := self._index.get(anchor)) is not None and place.siblings is target:
            at = next(at for at, row in enumerate(target) if row is place.row)
            return at if "before" in patch else at + 1
        self._missed(patch, f"patch insert: anchor {quoted(anchor)} is not in the list; appended")
        return len(target)

    def _patch(self, patch: Patch) -> None:
        if not patch.get("id"):
            self._missed(patch, "patch: id is required for non-insert patches")
            return
        place = self._find(patch, "patch")
        if place is None:
            return
        row = place.row
        wanted = patch.get("name")
        if wanted and normalise(wanted) != normalise(row.name):
            said = f"the patch says {quoted(wanted)}, the row is {quoted(row.name)}"
            self._missed(patch, f"patch: name mismatch for entry {quoted(patch['id'])} ({said}), skipping")
            return
        if patch.get("remove"):
            self._remove(place, patch)
            return
        self._note(place.top)
        self._record(row, patch)
        if "config" in patch:
            self._replaced.setdefault(id(row), (row, row.config))
        for key in patch:
            if key not in _FRAMING:
                self._assign(row, key, copied(patch[key]), patch)
        if "merge" in patch:
            # in place: the row's config is its own, copied when it came in
            config = row.config if isinstance(row.config, Map) else Map(patch["merge"].mark)
            _merge(config, patch["merge"])
            self._assign(row, "config", config, patch)
        if not _RESHAPING.isdisjoint(patch):
            adopt_children(row, self._warn)
            for child in row.children:
                if not child.origin:
                    self._name_origin(child)

    def _assign(self, row: Row, key: str, value: Any, patch: Patch) -> None:
        row[key] = value
        row.keys_at[key], row.values_at[key] = patch.key_at(key), patch.value_at(key)

    def _record(self, row: Row, patch: Patch) -> Change:
        named = ["insert"] if patch.get("insert") is not None else []
        fields = (*named, *(key for key in patch if key == "merge" or key not in _FRAMING))
        change = Change(self._label, patch.mark, fields)
        row.changes.append(change)
        return change

    def _remove(self, place: _Place, patch: Patch) -> None:
        change = self._record(place.row, patch)
        if place.top is not place.row:
            self._note(place.top)
        place.siblings[:] = [row for row in place.siblings if row is not place.row]
        for row in place.row.walk():
            self.removed.append(Removed(row, change))
            if row.id is not None and (known := self._index.get(row.id)) and known.row is row:
                del self._index[row.id]

    # -- where things are ------------------------------------------------------------------------

    def _visit(self, rows: list[Row], siblings: list[Row], top: Row | None, depth: int) -> None:
        for row in rows:
            root = top or row
            if row.id is not None:
                self._index[row.id] = _Place(row, siblings, root, depth)
            if row.is_group and isinstance(row.config, list):
                self._visit(row.children, row.config, root, depth + 1)

    def _find(self, patch: Patch, what: str) -> _Place | None:
        place = self._index.get(patch["id"])
        if place is None:
            found = self._closest(patch["id"])
            meant = f"closest: {', '.join(map(quoted, found))}" if found else ""
            if "name" in patch and not found:
                meant = "a new row stands under insert"
            self._missed(patch, f"{what}: entry {quoted(patch['id'])} not found", meant)
        return place

    def _closest(self, missed: str) -> list[str]:
        """Ids that look like the one that is missed; none once looking has taken long."""
        self._compared += len(self._index)
        return closest(missed, list(self._index)) if self._compared <= MAX_COMPARED else []

    def _note(self, top: Row) -> None:
        """Remember what a top-level row looked like before this layer touched it."""
        if id(top) not in self._before:
            self._before[id(top)] = (top, repr(top))

    def _name_origin(self, row: Row) -> None:
        row.origin = self._label
        for child in row.children:
            self._name_origin(child)

    # -- misses ----------------------------------------------------------------------------------

    def _missed(self, patch: Patch, text: str, meant: str = "") -> None:
        if patch.get("require"):
            raise RowError(text.removesuffix(", skipping"), patch.mark, hint=meant)
        where = f"line {patch.mark.line}" if self._label == patch.mark.file else str(patch.mark)
        self._warn(f"{text} ({where}; {meant})" if meant else f"{text} ({where})")

    def _warn(self, text: str) -> None:
        self.warnings.append(Warned(self._label, text))


def _merge(target: Map, patch: Map) -> None:
    """RFC 7386: maps merge, null deletes, all else replaces. A target that is no map counts as empty."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
            continue
        if isinstance(value, Map):
            held = target.get(key)
            inner = held if isinstance(held, Map) else Map(value.mark)
            _merge(inner, value)
            target[key] = inner
        else:
            target[key] = copied(value)
        target.keys_at[key], target.values_at[key] = patch.key_at(key), patch.value_at(key)


def _lost(before: Any, after: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of the keys that were in `before` and are not in `after`."""
    if not isinstance(before, dict):
        return
    for key, value in before.items():
        if not isinstance(after, dict) or key not in after:
            yield (*path, key)
        else:
            yield from _lost(value, after[key], (*path, key))


def launcher_patch(**fields: Any) -> Patch:
    """A patch that the launcher makes itself."""
    patch = Patch(Mark("<launcher>", 1, 1))
    patch.update(fields)
    return patch
