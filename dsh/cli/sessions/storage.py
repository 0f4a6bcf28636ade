"""What the storage of a session consists of: `dsh sessions stats --rows`."""

from typing import Any

from dsh.persistence.backend import StorageFigures


def as_json(figures: StorageFigures) -> dict[str, Any]:
    """The figures under the names that `--json` prints; shares are between 0 and 1, null where nothing is."""
    return {
        "encoding": figures.encoding,
        "rows": figures.rows,
        "events": figures.events,
        "packedRows": figures.packed_rows,
        "packedEvents": figures.packed_events,
        "textBytes": figures.text_bytes,
        "unpackedBytes": figures.unpacked_bytes,
        "storedBytes": figures.stored_bytes,
        "savedByPacking": _saved(figures.text_bytes, figures.unpacked_bytes),
        "savedByCompression": _saved(figures.stored_bytes, figures.text_bytes),
    }


def in_words(figures: StorageFigures) -> list[tuple[str, str]]:
    """Label and value, a line each."""
    lines = [
        ("rows", f"a header and {figures.rows:,} rows for {figures.events:,} events"),
        ("packed", f"{figures.packed_rows:,} of the rows cover {figures.packed_events:,} events"),
        ("text", f"{figures.text_bytes:,} bytes; {figures.unpacked_bytes:,} if nothing were packed"),
        ("stored", f"{figures.stored_bytes:,} bytes, {figures.encoding}"),
        ("packing", _told(figures.text_bytes, figures.unpacked_bytes)),
    ]
    if figures.encoding != "plain":
        lines.append((figures.encoding, _told(figures.stored_bytes, figures.text_bytes)))
    return lines


def _saved(now: int, before: int) -> float | None:
    return None if before == 0 else round(1 - now / before, 4)


def _told(now: int, before: int) -> str:
    saved = _saved(now, before)
    if saved is None:
        return "nothing to save"
    return f"saves {saved:.1%}" if saved >= 0 else f"costs {-saved:.1%}"
