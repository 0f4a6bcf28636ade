"""What was streamed of one attempt: kept in case no message comes of it."""

from collections.abc import Iterator

from dsh.cli.sessions.conversation.foreign import integer_at, text_at
from dsh.cli.sessions.conversation.item import Call, Part, Words
from dsh.session.chunk_run import ChunkRun
from dsh.session.value import JsonObject


class _Block:
    """The texts of one block; those of packed runs are shared with the log."""

    __slots__ = ("loose", "name", "texts")

    def __init__(self) -> None:
        self.texts: list[list[str]] = []
        self.loose: list[str] | None = None
        """The list that takes the next single piece."""
        self.name = ""


class Streamed:
    """The blocks that deltas add up to, in the order in which they began."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, int], _Block] = {}

    def add_run(self, run: ChunkRun) -> None:
        """Take many deltas."""
        block = self._block(run.kind, run.index, run.name or "")
        block.texts.append(run.texts)
        block.loose = None

    def add(self, chunk: JsonObject) -> None:
        """Take one piece, whatever it is."""
        kind = text_at(chunk, "type")
        if not kind.endswith("-delta"):
            return
        block = self._block(
            kind.removesuffix("-delta"), integer_at(chunk, "index") or 0, text_at(chunk, "name")
        )
        if block.loose is None:
            block.loose = []
            block.texts.append(block.loose)
        block.loose.append(text_at(chunk, "text") or text_at(chunk, "argumentsDelta"))

    def _block(self, kind: str, index: int, name: str) -> _Block:
        block = self._blocks.get((kind, index))
        if block is None:
            block = self._blocks[kind, index] = _Block()
        block.name = block.name or name
        return block

    def parts(self) -> Iterator[Part]:
        """The blocks as far as they came; empty ones left out."""
        for (kind, _), block in self._blocks.items():
            text = "".join(piece for texts in block.texts for piece in texts)
            if kind == "tool-call":
                yield Call("", block.name, text, is_fragment=True)
            elif text:
                yield Words(text, "reasoning" if kind == "reasoning" else "text")
