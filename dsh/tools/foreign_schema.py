"""JSON Schemas from outside, of any draft: what servers say of their tools.

Our own tools stay with the subset of `dsh.tools.schema`. The library is no part of the base install; it comes
with the extras `mcp` and `schema`, and is loaded with the first schema.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dsh.errors import DshError
from dsh.unicode import valid

if TYPE_CHECKING:
    from jsonschema_rs import Validator

SHOWN_VIOLATIONS = 50
"""Violations that are gathered at most; a schema with many alternatives can find any number."""
SHOWN_CHARS = 500
"""Of one violation."""


class ForeignSchemaError(DshError):
    """The schema is none, or refers to something outside of itself."""


class ForeignSchema:
    """A compiled schema. State: the validator of the library."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Nothing is fetched: a `$ref` that leads out of the schema is an error.

        Raises:
            ForeignSchemaError: it is no schema.
            ImportError: the library is not installed.
        """
        import jsonschema_rs

        self._required = frozenset(name for name in _listed(schema.get("required")) if isinstance(name, str))
        try:
            self._validator: Validator = jsonschema_rs.validator_for(
                dict(schema), offline=True, validate_formats=False
            )
        except ValueError as error:
            raise ForeignSchemaError(_first_line(error)) from None

    def violations(self, value: Any) -> list[str]:
        """What is wrong with a JSON value, each with its place; empty when it is valid."""
        found: list[str] = []
        try:
            for error in self._validator.iter_errors(value):
                place = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in error.instance_path)
                text = error.message[:SHOWN_CHARS]
                found.append(f'"{place.removeprefix(".")}": {text}' if place else text)
                if len(found) == SHOWN_VIOLATIONS:
                    break
        except ValueError as error:
            found.append(f"it cannot be checked: {_first_line(error)}")
        return [valid(text) for text in found]

    def fitted(self, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
        """The arguments, and what is wrong with them.

        Models give null for what they leave out: where that does not fit and the rest does without it, nulls
        of properties that are not required count as absent.
        """
        found = self.violations(arguments)
        if found and any(value is None for value in arguments.values()):
            trimmed = {k: v for k, v in arguments.items() if v is not None or k in self._required}
            if not self.violations(trimmed):
                return trimmed, []
        return arguments, found


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else ()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:SHOWN_CHARS]
