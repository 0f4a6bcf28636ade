"""How the models behind the Messages format are made to think and kept from it: what each one takes.

Source: Anthropic's pages on thinking, effort and preserved thinking, and what is new in each model, of
November 2026.
"""

import re
from typing import Any, Literal

import msgspec

Style = Literal["budget", "adaptive", "none"]
Off = Literal["unsaid", "disabled", "between_tools", "never"]


class Ways(msgspec.Struct, frozen=True):
    """What one model takes."""

    style: Style = "budget"
    """How an effort is told: a number of tokens, or its name; `none` where it cannot think."""
    off: Off = "unsaid"
    """How it is told not to think; `never` where it cannot be."""
    is_bound: bool = False
    """Whether it refuses thinking that comes back behind anything else than it was thought behind."""

    @property
    def efforts(self) -> tuple[str, ...]:
        """The efforts that can be asked for."""
        if self.style == "none":
            return ("off",)
        thinking = ("low", "medium", "high")
        return thinking if self.off == "never" else ("off", *thinking)

    def without(self) -> dict[str, Any]:
        """The members of a request for as little thinking as there can be."""
        if self.style == "none" or self.off == "unsaid":
            return {}
        if self.off == "never":
            return {"output_config": {"effort": "low"}}
        return {"thinking": {"type": self.off}}


_NAME = re.compile(r"claude-([a-z]+)(?:-(\d{1,2})(?:[-.](\d{1,2}))?)?(?!\d)", re.IGNORECASE)


def known_ways(model: str) -> Ways:
    """What a model takes by its name; any other than a Claude of a known version is given a budget.

    Versions are in the name: `claude-opus-4-6`, `anthropic/claude-opus-4.6`. Dates are none, and names of
    the old order (`claude-3-7-sonnet`) are of old models.
    """
    found = _NAME.search(model)
    if found is None:
        return Ways()
    family, version = found[1].lower(), (int(found[2] or 0), int(found[3] or 0))
    if family not in ("fable", "mythos"):
        if version < (4, 6):
            return Ways()
        if version < (5, 0):
            return Ways("adaptive")
    off: Off = "never"
    if family == "haiku" or (family in ("opus", "sonnet") and version < (5, 5)):
        off = "disabled"
    elif family == "sonnet":
        off = "between_tools"
    return Ways("adaptive", off, version > (5, 0))
