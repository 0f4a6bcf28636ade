"""Writes what is generated in the documents: `python -m docs.generate`.

Run it from the repository after a change of rows, configs, events, services or commands, and commit what it
changes. A test compares.
"""

import sys

from docs.generate.page import made_pages


def main() -> int:
    changed = [path for path, text in made_pages().items() if path.read_text(encoding="utf-8") != text]
    for path, text in made_pages().items():
        path.write_text(text, encoding="utf-8")
    sys.stdout.write("".join(f"wrote {path}\n" for path in changed) or "nothing to change\n")
    return 0


sys.exit(main())
