"""Whether a row's config fits its plugin's schema, and what is said of keys that the plugin does not know."""

import logging
import os
from collections.abc import Callable

from dsh.composition.expression.language import find_expressions
from dsh.composition.mount.audit import RowReport
from dsh.composition.mount.entry import Entry
from dsh.composition.mount.facts import Facts, scope_of
from dsh.composition.profile import shipped
from dsh.composition.value import Mark
from dsh.errors import DshError
from dsh.kernel import resolve_config

UnknownKey = Callable[[str, str, str], None]
_SHIPPED = str(shipped("bundles")) + os.sep


def unknown_keys(entry: Entry, logger: logging.Logger) -> UnknownKey | None:
    """What to do with keys that the plugin of a mounted row does not know: None where they are an error.

    That is so in rows which a shipped bundle brings, whoever wrote the key. In every other row each is told
    once and left out.
    """
    if entry.row.mark.file.startswith(_SHIPPED):
        return None
    fiber, told = entry.fiber, set[tuple[str, str, Mark]]()

    def tell(path: str, key: str, hint: str) -> None:
        now = fiber.entry if fiber is not None and isinstance(fiber.entry, Entry) else entry
        mark, _ = now.config_at(path, key)  # where it stands after the last edit
        if (path, key, mark) not in told:
            told.add((path, key, mark))
            meant = f" ({hint})" if hint else ""
            logger.warning(
                "%s (%s): %s: unknown key %r is left out%s", now.id, now.row.name, mark, key, meant
            )

    return tell


def tell_unread(entry: Entry, logger: logging.Logger) -> None:
    """Warn of a config that the plugin never gets to see: it has no schema and its body takes none."""
    runtime = entry.runtime
    if runtime is None or entry.carries_entries or runtime.schema is not None or runtime.takes_config:
        return
    if entry.row.config not in (None, {}):
        where = entry.row.value_at("config")
        logger.warning("%s (%s): %s: the plugin takes no config: left out", entry.id, entry.row.name, where)


def misfit(entry: Entry, facts: Facts) -> RowReport | None:
    """What is wrong with a config, as far as it can be said before the row runs.

    A config that reads services has to wait for them. Unknown keys of a user's row are told when it runs.
    """
    schema = entry.runtime.schema if entry.runtime is not None else None
    if entry.is_off or entry.carries_entries:
        return None
    expressions = [expr for _, expr in find_expressions(entry.row.config)]
    if any(expr.checked.services for expr in expressions) or (schema is None and not expressions):
        return None
    from dsh.composition.expression.evaluation import config_data

    try:
        data = config_data(entry.row.config, scope_of(facts))
        if schema is not None:
            resolve_config(schema, data, None if entry.row.mark.file.startswith(_SHIPPED) else _ignore)
    except DshError as error:
        return RowReport(entry.id, entry.row.name, entry.failure(error), error)
    return None


def _ignore(path: str, key: str, hint: str) -> None:
    """Says nothing of an unknown key."""
