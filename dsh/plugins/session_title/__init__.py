"""Row `session-title`: names a session after the first words of its first prompt.

A row that makes better titles registers with the service; a person's own title stays (`spec/persistence.md`
§10). The title is the projection `title` too.
"""

from collections.abc import AsyncIterator, Callable

from dsh.capabilities.projections import PROJECTIONS
from dsh.capabilities.titles import TITLES
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.llm.registry import LLM_STREAM
from dsh.llm.request import LlmRequest
from dsh.plugins.session_title.config import Config
from dsh.plugins.session_title.service import TitleService
from dsh.session.chunk import Chunk
from dsh.session.projection.title import TITLE
from dsh.session.store import SESSION_DISPOSED, SESSION_EVENT, SESSIONS

__all__ = ["Config", "apply", "inject", "provide"]

inject = [SESSIONS]
provide = [TITLES]


def apply(ctx: Context, config: Config) -> None:
    if config.fallback_max_bytes > config.max_title_bytes:
        raise CompositionError(
            f"fallbackMaxBytes {config.fallback_max_bytes} is more than "
            f"maxTitleBytes {config.max_title_bytes}"
        )
    sessions = ctx.use(SESSIONS)
    titles = TitleService(ctx, config)

    def before_request(
        request: LlmRequest, following: Callable[[], AsyncIterator[Chunk]]
    ) -> AsyncIterator[Chunk]:
        """A request whose route is that of the one before has no header of its own in the log."""
        if request.session_id is not None and request.purpose is None:
            session = sessions.get(request.session_id)
            if session is not None:
                titles.route_known(session)
        return following()

    ctx.on(SESSION_EVENT, titles.on_event)
    ctx.on(SESSION_DISPOSED, titles.disposed)
    ctx.on(LLM_STREAM, before_request)
    ctx.inject([PROJECTIONS], lambda inner: inner.use(PROJECTIONS).register(TITLE))
