"""From a profile's name to rows: reads the layers in their order and applies them."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dsh.composition.patch import Layer, Warned
from dsh.composition.row import Row


class Composition(NamedTuple):
    """What a profile, the home and the `--patch` files make together. Pure data: nothing is imported."""

    profile: str
    rows: list[Row]
    layers: list[Layer]
    """Low to high: bundles, profile, home, each `--patch`, the launcher's own (only if it says anything)."""
    warnings: list[Warned]
    """Print each as `dsh: {warning}` on stderr, at boot and in dumps."""


def compose(
    profile: str,
    patches: list[Path],
    home: Path,
    *,
    default_only: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Composition:
    """Read and apply all layers of a profile. Writes and imports nothing.

    Args:
        patches: `--patch` files in the order of the command line, absolute.
        home: the home directory (`dsh.composition.home.home_path`).
        default_only: the bundles alone; user files are not even opened.
        environ: the inherited environment, for the launcher's own layer; the process's by default.

    Raises:
        CompositionError: unknown profile or bundle, or a file that cannot be read, parsed or applied;
            names file, line and column.
    """
    raise NotImplementedError
