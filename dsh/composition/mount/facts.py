"""What expressions may read besides services: facts that are fixed at start."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dsh.composition.row import Row, RowError
from dsh.composition.value import Expr, type_name

if TYPE_CHECKING:
    from dsh.composition.expression.evaluation import Scope
    from dsh.kernel import Context


class Facts(NamedTuple):
    """What expressions may read, fixed at start."""

    home: Path
    profile: str
    cwd: str
    env: Mapping[str, str]
    """The launch environment, merged (`LaunchEnvironment.mapping()`)."""


def scope_of(facts: Facts, ctx: "Context | None" = None) -> "Scope":
    """The names one evaluation sees; services only where there is a context to read them from."""
    from dsh.composition.expression.evaluation import Scope

    return Scope(env=facts.env, cwd=facts.cwd, profile=facts.profile, home=facts.home, ctx=ctx)


def says_disabled(row: Row, facts: Facts) -> bool:
    """Whether the row itself says that it must not run; an expression is evaluated.

    Raises:
        CompositionError: the expression fails or gives neither a boolean nor None.
    """
    value = row.disabled
    if not isinstance(value, Expr):
        return bool(value)
    from dsh.composition.expression.evaluation import evaluate

    result = evaluate(value, scope_of(facts))
    if result is not None and not isinstance(result, bool):
        what = type_name(result)  # never the value, which may come from the environment
        raise RowError(f"disabled must give true, false or None, not {what}", value.mark)
    return bool(result)
