"""The composed rows as one YAML document with their provenance in comments."""

from dsh.composition.compose import Composition


def dump(composition: Composition) -> str:
    """One loadable document of rows, ending in a newline; `[]` for an empty tree.

    Expressions are printed verbatim and never evaluated. Each run of rows with one provenance is
    preceded by `# == <origin>[, patched by <layer>, …]`. For `--dump-default-config` compose with
    `default_only=True`.
    """
    raise NotImplementedError
