"""Which texts go when a session has kept too many."""

import os
from pathlib import Path

from dsh.plugins.spill_local import Config, LocalSpillStore
from tests.aio import aio


@aio
async def test_texts_that_fill_the_room_exactly_stay_and_of_an_earlier_run_the_oldest_goes(
    tmp_path: Path,
) -> None:
    def opened() -> LocalSpillStore:
        return LocalSpillStore(Config(root=str(tmp_path), max_session_bytes=4))

    store = opened()
    kept = [await store.save(store.locate("s", name), "s", "xx") for name in ("a", "b")]
    paths = [Path(one.locator) for one in kept]
    assert [path.exists() for path in paths] == [True, True]

    os.utime(paths[0], (2, 2))
    os.utime(paths[1], (1, 1))
    later = opened()
    await later.save(later.locate("s", "c"), "s", "xx")
    assert [path.exists() for path in paths] == [True, False]
