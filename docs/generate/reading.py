"""The modules of the kernel in an order to read them, each with the first sentence of its own text."""

import ast
from pathlib import Path

import dsh.kernel
from docs.generate.markdown import code, table
from docs.generate.source import tree_of

READING = (
    *(
        "key",
        "plugin",
        "context",
        "node",
        "effect",
        "owner",
        "fiber",
        "transition",
        "address",
        "root",
        "event",
    ),
    *("internal", "service", "view", "accessor", "scope", "layer", "cancel"),
    *("schema", "shape", "secret", "tree"),
    *("journal", "foreign", "task"),
)


def modules() -> set[str]:
    """The names of the modules that there are."""
    return {path.stem for path in Path(dsh.kernel.__path__[0]).glob("*.py")} - {"__init__"}


def reading_table() -> str:
    """Modules that nobody has put in order stand at the end."""
    rows = []
    for name in [*READING, *sorted(modules() - set(READING))]:
        text = ast.get_docstring(tree_of(f"dsh.kernel.{name}")) or ""
        rows.append((code(f"{name}.py"), text.partition("\n")[0]))
    return table(("module", "what it is"), rows)
