"""Logs of any moves that a conversation can make, for laws of what is folded from them."""

from typing import Any

from hypothesis import strategies as st

from dsh.session.log import Session
from tests.session.talk import Talk

MOVES = (
    "user", "reply", "reply", "silent", "empty", "cut", "call", "step", "turn", "route", "digest", "lost",
    "prune", "compact", "replace",
)  # fmt: skip


class Mover:
    """Plays moves, each where the log lets it."""

    def __init__(self) -> None:
        self.talk = Talk()
        self.results: list[int] = []

    def play(self, move: str, a: int, b: int) -> None:
        talk, log = self.talk, self.talk.log
        if log.open_turn is None:
            talk.turn()
        if log.open_step is None:
            talk.step(1)
        words = f"{'模型' if a % 3 == 0 else 'word '}" * b
        used = {"inputTokens": a * 10, "outputTokens": b, "cacheReadTokens": a}
        match move:
            case "user":
                talk.user(words)
            case "reply":
                talk.answer(words, usage=used)
            case "silent":
                talk.answer(words)
            case "empty":
                talk.message("", usage=used, sources=[])
            case "cut":
                talk.message(words[: b // 2], usage=used, sources=talk.stream(words, ("x", words)))
            case "call":
                call_id = talk.name()
                talk.answer(words, (call_id, words), usage=used)
                self.results.append(talk.result(call_id, words))
            case "step":
                step = log.open_step or 0
                talk.end_step()
                talk.step(step + 1)
            case "turn":
                talk.end_step()
                talk.end_turn()
            case "route":
                talk.route(f"m{a % 2}", system=words)
            case "digest":
                talk.digest()
            case "lost":
                talk.stream(words, usage=used)
            case "prune":
                self.prune(a, words)
            case "compact" if nodes := log.surface_nodes:
                first, last = sorted((a % len(nodes), b % len(nodes)))
                talk.compact(first, last, words)
            case "replace" if nodes := log.surface_nodes:
                self.replace(nodes[a % len(nodes)], words)

    def prune(self, a: int, words: str) -> None:
        there = [seq for seq in self.talk.log.surface_nodes if seq in self.results]
        if there:
            self.results.append(self.talk.prune(there[a % len(there)], words))

    def replace(self, seq: int, words: str) -> None:
        """What nobody prices."""
        message: dict[str, Any] = {
            "role": "user", "content": [{"type": "text", "text": words}], "id": self.talk.name(),
            "source": {"kind": "plugin", "plugin": "other"},
        }  # fmt: skip
        operation = {"op": "replace", "start": seq, "end": seq}
        self.talk.put("user/message", message, surface=operation, sources=[seq])


plays = st.lists(
    st.tuples(st.sampled_from(MOVES), st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=25
)


def played(moves: list[tuple[str, int, int]]) -> Session:
    mover = Mover()
    for move in moves:
        mover.play(*move)
    return mover.talk.log
