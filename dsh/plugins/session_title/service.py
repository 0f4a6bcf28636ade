"""The service `sessionTitle`: who writes the title of a session, and when.

A fallback is written one tick of the event loop after the first prompt entered the log. A provider is asked
in a task of its own once the session's own request has its route, so no turn waits for it or fails with it.
Newer work takes the place of older: its token is cancelled and its answer is dropped.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from dsh.capabilities.titles import (
    TITLES,
    ProvidedTitle,
    SessionTitleError,
    SessionTitleInvalidError,
    TitlePrompt,
    TitleProvider,
    TitleRequest,
)
from dsh.kernel import Cancelled, CancelToken, Context, Effect, Service
from dsh.kernel.foreign import contained, told
from dsh.plugins.session_title.config import Config
from dsh.plugins.session_title.prompts import Prompts, current_title, is_pinned, route_of
from dsh.plugins.session_title.text import fallback_title, normalise_title, visible_text
from dsh.session.error import SessionError, SessionNotLive
from dsh.session.log import Session
from dsh.session.store import SESSIONS, Appended

REQUEST_HEADER = "request/header"


class _Work:
    """What is to be done, or being done, for one session. Newer work cancels it."""

    def __init__(self, prompts: tuple[TitlePrompt, ...]) -> None:
        self.prompts = prompts
        self.signal = CancelToken()
        self.is_begun = False


class TitleService(Service):
    """Implements `dsh.capabilities.titles.Titles`. State: the provider, work by session."""

    provide = TITLES

    def __init__(self, ctx: Context, config: Config) -> None:
        self._config = config
        self._provider: TitleProvider | None = None
        self._work: WeakKeyDictionary[Session, _Work] = WeakKeyDictionary()
        self._prompts = Prompts()
        super().__init__(ctx)

    # -- the provider ------------------------------------------------------------------------------

    def register(self, provider: TitleProvider) -> Effect:
        def own() -> Callable[[], None]:
            if self._provider is not None:
                raise SessionTitleError(
                    f"titles come from {self._provider.id!r} already, {provider.id!r} cannot make them too",
                    code="SESSION_TITLE_PROVIDER_EXISTS",
                    hint="disable one of the two rows",
                )
            self._provider = provider
            return leave

        def leave() -> None:
            self._provider = None
            for work in list(self._work.values()):
                work.signal.cancel("the title provider is gone")
            self._work.clear()

        return self.ctx.effect(own, f"title provider {provider.id}")

    # -- what the log tells ------------------------------------------------------------------------

    def on_event(self, appended: Appended) -> None:
        """A live log has grown."""
        event = appended.event
        if event.type == REQUEST_HEADER:
            self.route_known(appended.session)
        elif (
            event.type == "user/message"
            and event.surface == "append"
            and visible_text(event.data) is not None
        ):
            self._prompted(appended.session)

    def _prompted(self, session: Session) -> None:
        is_untitled = session.last("session/title") is None
        if is_untitled:
            asyncio.get_running_loop().call_soon(self._write_fallback, session)
        provider = self._provider
        if provider is None or is_pinned(session):
            return
        if provider.automatic == "first-prompt" and (
            not is_untitled or session.header.parent_session is not None
        ):
            return
        prompts = self._prompts.of(session)
        if provider.automatic == "all-prompts" or len(prompts) == 1:
            self._plan(session, prompts)

    def _plan(self, session: Session, prompts: list[TitlePrompt]) -> _Work:
        self._supersede(session, "a newer prompt")
        work = self._work[session] = _Work(tuple(prompts))
        return work

    def _supersede(self, session: Session, reason: str) -> None:
        if (former := self._work.pop(session, None)) is not None:
            former.signal.cancel(reason)

    def route_known(self, session: Session) -> None:
        """The session asks its model: what waits for the route begins."""
        work = self._work.get(session)
        if work is not None and not work.is_begun:
            work.is_begun = True
            self.owner_ctx.spawn(self._ask_by_itself(session, work), f"title of session {session.id}")

    def disposed(self, session: Session) -> None:
        """The session is not live any more."""
        self._supersede(session, "the session has ended")

    # -- writing -----------------------------------------------------------------------------------

    def _write_fallback(self, session: Session) -> None:
        if self._is_live(session) and current_title(session) is None:
            try:
                self._fallback(session)
            except SessionError as error:
                self.owner_ctx.logger.warning("session %s gets no title: %s", session.id, error)

    def _fallback(self, session: Session) -> str | None:
        prompts = self._prompts.of(session)
        if not prompts:
            return None
        title = fallback_title(
            prompts[0].text,
            max_words=self._config.fallback_max_words,
            max_bytes=self._config.fallback_max_bytes,
        )
        return self._write(session, title, (prompts[0].seq,), {"kind": "fallback"}) if title else None

    def _write(self, session: Session, title: str, seqs: tuple[int, ...], source: dict[str, Any]) -> str:
        if not self._is_live(session):
            raise SessionNotLive(f"session {session.id} is not live and gets no title")
        session.append("session/title", {"title": title, "messageSeqs": seqs, "source": source})
        return title

    def _is_live(self, session: Session) -> bool:
        sessions = self.owner_ctx.get(SESSIONS)
        return sessions is not None and sessions.get(session.id) is session

    async def _ask_by_itself(self, session: Session, work: _Work) -> None:
        try:
            await self._ask(session, work)
        except Cancelled:
            return
        except BaseException as raised:
            error = contained(raised, "the title provider")
            if not work.signal.cancelled:
                self.owner_ctx.logger.warning("session %s keeps its title: %s", session.id, told(error))
        finally:
            if self._work.get(session) is work:
                del self._work[session]

    async def _ask(self, session: Session, work: _Work) -> str:
        """Ask the provider and write what it answers.

        Raises:
            Cancelled: newer work has taken its place.
            SessionTitleInvalidError: the answer is no title.
            Exception: what the provider raised.
        """
        provider = self._provider
        if provider is None:
            raise Cancelled("the title provider is gone")
        request = TitleRequest(session, work.prompts, route_of(session), work.signal)
        answering = asyncio.ensure_future(_answer(provider, request))
        try:
            answer = await work.signal.race(answering)
        finally:
            answering.cancel()
        work.signal.raise_if_cancelled()
        title = self._checked(answer, request)
        source: dict[str, Any] = {"kind": "provider", "provider": provider.id}
        if answer.model is not None:
            source["model"] = {"provider": answer.model.provider, "model": answer.model.model}
        return self._write(session, title, answer.message_seqs, source)

    def _checked(self, answer: ProvidedTitle, request: TitleRequest) -> str:
        title = normalise_title(answer.title, self._config.max_title_bytes)
        if not title:
            raise SessionTitleInvalidError("the provider's title holds nothing that can be shown")
        seqs, asked = answer.message_seqs, [prompt.seq for prompt in request.prompts]
        if not seqs or list(seqs) != sorted(set(seqs)) or not set(seqs) <= set(asked):
            raise SessionTitleInvalidError(
                f"a title is made of prompts that were asked for, each once and in order: {asked}, "
                f"not {list(seqs)}"
            )
        if answer.model is not None and not (answer.model.provider and answer.model.model):
            raise SessionTitleInvalidError("a model is named with its provider, or not at all")
        return title

    # -- the service -------------------------------------------------------------------------------

    def title(self, session: Session) -> str | None:
        return current_title(session)

    def rename(self, session: Session, title: str) -> str:
        shown = normalise_title(title, self._config.max_title_bytes)
        if not shown:
            raise SessionTitleInvalidError("the title holds nothing that can be shown")
        written = self._write(session, shown, (), {"kind": "user"})
        self._supersede(session, "the session was renamed")
        return written

    async def refresh(self, session: Session) -> str | None:
        prompts = self._prompts.of(session)
        self._supersede(session, "the title is made anew")
        if not prompts:
            return None
        if self._provider is None:
            return self._fallback(session)
        work = self._plan(session, prompts)
        work.is_begun = True
        try:
            return await self._ask(session, work)
        except Cancelled:
            return None
        finally:
            if self._work.get(session) is work:
                del self._work[session]


async def _answer(provider: TitleProvider, request: TitleRequest) -> ProvidedTitle:
    """What the provider answers. A task of its own runs it, and no exit of foreign code may leave that."""
    try:
        return await provider.generate(request)
    except BaseException as raised:
        raise contained(raised, f"title provider {provider.id}") from None
