"""From a profile's name to rows: reads the layers in their order and applies them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dsh.composition.home import check_home
from dsh.composition.patch import Layer, Warned, apply_layers, launcher_patch
from dsh.composition.profile import find_profile, read_layer, read_layers, user_files
from dsh.composition.row import Row

LAUNCHER = "<launcher>"
"""Label of the layer that the launcher itself adds."""
TELEMETRY_ROW = "session-telemetry-otel"
NOT_DISABLED = frozenset({"", "0", "false", "no", "off"})
"""Values of `DSH_TELEMETRY_DISABLED` that leave telemetry as it is; any other turns it off, to be safe."""


class Composition(NamedTuple):
    """What a profile, the home and the `--patch` files make together. Pure data: nothing is imported."""

    profile: str
    rows: list[Row]
    layers: list[Layer]
    """Low to high: bundles, profile, home, each `--patch`, the launcher's own. Empty ones are left out."""
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
        default_only: the bundles alone; the user's patch files are not even opened.
        environ: the inherited environment, for the launcher's own layer; the process's by default.

    Raises:
        CompositionError: unknown profile or bundle, a home that is no directory, or a file that cannot be
            read, parsed or applied; names file, line and column.
    """
    if not default_only:
        check_home(home)
    manifest = find_profile(profile, home)
    layers, warnings = read_layers(manifest, patches, home, default_only=default_only)
    return _composed(profile, layers, warnings, {} if default_only else environ)


def recompose(before: Composition, home: Path, *, environ: Mapping[str, str] | None = None) -> Composition:
    """The same composition with the user's two patch files read anew; everything else is as it was.

    Raises:
        CompositionError: a file cannot be read, parsed or applied.
    """
    kinds = [kind for kind, _ in user_files(before.profile, home)]
    warnings: list[Warned] = []
    layers = [layer for layer in before.layers if layer.kind == "bundle"]
    for kind, path in user_files(before.profile, home):
        layers.append(read_layer(path, str(path), warnings, kind, missing_ok=True))
    layers += [layer for layer in before.layers if layer.kind not in ("bundle", "launcher", *kinds)]
    return _composed(before.profile, [layer for layer in layers if layer.patches], warnings, environ)


def _composed(
    profile: str, layers: list[Layer], warnings: list[Warned], environ: Mapping[str, str] | None
) -> Composition:
    """Apply the layers and, above them, the launcher's own."""
    rows, missed = apply_layers(layers)
    if own := _launcher_layer(rows, os.environ if environ is None else environ):
        layers.append(own)
        rows, missed = apply_layers(layers)
    return Composition(profile, rows, layers, warnings + missed)


def _launcher_layer(rows: list[Row], environ: Mapping[str, str]) -> Layer | None:
    """`DSH_TELEMETRY_DISABLED` turns the telemetry row off, unless it says that it does not."""
    is_off = environ.get("DSH_TELEMETRY_DISABLED", "").strip().lower() not in NOT_DISABLED
    if not is_off or not any(row.id == TELEMETRY_ROW for row in rows):
        return None
    return Layer(LAUNCHER, [launcher_patch(id=TELEMETRY_ROW, disabled=True)], "launcher")
