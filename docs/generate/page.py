"""Which page holds which generated section."""

from pathlib import Path

from docs.generate import calls, declared, payloads, program, reading, rows, settings, tools
from docs.generate.markdown import filled, sections
from docs.generate.source import REPOSITORY
from dsh.kernel import CancelToken, Context, Fiber


def pages() -> list[Path]:
    """All documents of the repository."""
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def made_sections() -> dict[str, str]:
    """Every generated section by its name."""
    return {
        "rows-index": rows.index(),
        "rows": rows.catalogue(),
        "events": declared.event_table(),
        "services": declared.service_table(rows.providers(), rows.consumers()),
        "context": calls.member_table(Context, "ctx"),
        "fiber": calls.member_table(Fiber, "fiber", without=calls.KERNELS_OWN),
        "token": calls.member_table(CancelToken, "token"),
        "reading": reading.reading_table(),
        "help": program.help_pages(),
        "settings": settings.settings_tables(),
        "explain-json": program.explain_shape(),
        "payloads": payloads.payload_catalogue(),
        "tools-index": tools.index(),
        "tools": tools.catalogue(),
    }


def made_pages() -> dict[Path, str]:
    """The text that each page with generated sections should have.

    Raises:
        UnknownSection: a page asks for a section that is not made.
    """
    made = made_sections()
    texts = {path: path.read_text(encoding="utf-8") for path in pages()}
    return {path: filled(text, made) for path, text in texts.items() if sections(text)}
