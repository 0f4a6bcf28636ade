"""Makes layers and rows of YAML text, for the tests of this folder."""

from pathlib import Path

from dsh.composition.compose import Composition
from dsh.composition.grammar import read_patches
from dsh.composition.patch import Layer, Warned, apply_layers
from dsh.composition.row import Row
from dsh.composition.text.yaml import parse_yaml


def layer(label: str, text: str, warnings: list[Warned] | None = None) -> Layer:
    """A layer written in this text; `label` also names its file."""
    seen = [] if warnings is None else warnings
    patches = read_patches(
        parse_yaml(text.encode(), label), label, lambda said: seen.append(Warned(label, said))
    )
    return Layer(label, patches)


def composed(*texts: str, profile: str = "test") -> Composition:
    """The layers `layer0`, `layer1`, … applied in order."""
    warnings: list[Warned] = []
    layers = [layer(f"layer{n}", text, warnings) for n, text in enumerate(texts)]
    rows, missed = apply_layers(layers)
    return Composition(profile, rows, layers, warnings + missed)


def rows_of(*texts: str) -> list[Row]:
    return composed(*texts).rows


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
