"""Run as a process: streams a session into a storage, and says after each barrier how much is durable."""

import asyncio
import sys
from pathlib import Path

from dsh.persistence.coordinator import Coordinator
from dsh.session.chunk import TextDelta
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from tests.contract.storages import storage


async def main(name: str, root: str) -> None:
    coordinator = Coordinator(storage(name, Path(root)).open(), delay_s=0.001)
    session = Session(SessionHeader(id="demo", created_at=1, cwd="/srv/app", delegation_depth=0))
    session.on_append = lambda seq, event: coordinator.appended(session)
    coordinator.attach(session, is_new=True)
    for turn in range(1, 1000):
        session.append("turn/start", {"turn": turn})
        session.append("step/start", {"turn": turn, "step": 1})
        for word in range(20):
            session.append_chunk(turn, 1, TextDelta(0, f"{word} "))
            await asyncio.sleep(0)
        session.append("step/end", {"turn": turn, "step": 1})
        session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
        await coordinator.flush(session)
        sys.stdout.write(f"{session.length}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
