"""Titles by a provider and by a person: when one is asked, whose answer counts, and what a failure costs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dsh.agent.contract import AGENT_REQUEST, Agent, RequestSeed
from dsh.capabilities.titles import (
    TITLES,
    Automatic,
    ProvidedTitle,
    Route,
    SessionTitleError,
    SessionTitleInvalidError,
    TitleRequest,
    Titles,
)
from dsh.llm.auxiliary import ask
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.plugins import session_title
from dsh.plugins.session_title.prompts import Prompts
from dsh.session.error import ReentrantAppend, SessionNotLive
from dsh.session.log import Session
from dsh.session.message import user_message
from tests.agent.kit import Loop, data_of, loop, settled, short, text, types, until
from tests.aio import aio
from tests.session.talk import Talk

CONFIG = {"fallbackMaxWords": 5, "fallbackMaxBytes": 20, "maxTitleBytes": 20}


class Provider:
    """Answers what it is told to, when it is told to."""

    def __init__(self, automatic: Automatic = "first-prompt") -> None:
        self.id = "test"
        self.automatic: Automatic = automatic
        self.requests: list[TitleRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.answer: Any = None
        self.cancelled = 0

    async def generate(self, request: TitleRequest) -> ProvidedTitle:
        self.requests.append(request)
        number = len(self.requests)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(self.answer, BaseException):
            raise self.answer
        if self.answer is not None:
            answered: ProvidedTitle = self.answer
            return answered
        seqs = tuple(prompt.seq for prompt in request.prompts)
        return ProvidedTitle(title=f"title {number}", message_seqs=seqs)


class Titled:
    """A running loop with a provider."""

    def __init__(self, it: Loop, provider: Provider, agent: Agent) -> None:
        self.it, self.provider, self.agent = it, provider, agent

    @property
    def service(self) -> Titles:
        return self.it.ctx.use(TITLES)

    @property
    def titles(self) -> list[tuple[str, str]]:
        rows = data_of(self.agent.session, "session/title")
        return [(row["title"], row["source"]["kind"]) for row in rows]

    async def prompt(self, words: str) -> None:
        await self.it.prompt(self.agent, words)
        for _ in range(5):
            await asyncio.sleep(0)


@asynccontextmanager
async def titled(automatic: Automatic = "first-prompt", **agent: Any) -> AsyncIterator[Titled]:
    async with loop(text("done"), rows=[(session_title, CONFIG)]) as it:
        provider = Provider(automatic)
        it.ctx.use(TITLES).register(provider)
        yield Titled(it, provider, await it.agent(**agent))


@aio
async def test_the_first_prompt_is_asked_for_once_and_its_title_replaces_the_fallback() -> None:
    async with titled() as it:
        await it.prompt("fix the tests")
        await it.prompt("and the docs")

        assert it.titles == [("fix the tests", "fallback"), ("title 1", "provider")]
        (request,) = it.provider.requests
        assert [prompt.text for prompt in request.prompts] == ["fix the tests"]
        assert request.route == Route("p", "m")
        assert it.service.title(it.agent.session) == "title 1"
        last = it.agent.session.last("session/title")
        assert last is not None
        assert dict(last.data["source"]) == {"kind": "provider", "provider": "test"}
        assert list(last.data["messageSeqs"]) == [request.prompts[0].seq]


@aio
async def test_a_provider_for_all_prompts_is_asked_anew_with_all_of_them() -> None:
    async with titled("all-prompts") as it:
        await it.prompt("one")
        await it.prompt("two")

        assert [title for title, _ in it.titles] == ["one", "title 1", "title 2"]
        assert [[p.text for p in r.prompts] for r in it.provider.requests] == [["one"], ["one", "two"]]


@aio
async def test_the_provider_begins_when_the_route_is_known_and_never_holds_up_the_turn() -> None:
    async with titled() as it:
        it.provider.gate.clear()
        await it.prompt("go")

        assert types(it.agent.session)[-1] == "turn/end"
        assert len(it.provider.requests) == 1
        assert it.titles == [("go", "fallback")]
        it.provider.gate.set()
        await until(lambda: len(it.titles) == 2)
        assert short(it.agent.session).endswith("turn/end session/title")


@aio
async def test_an_unchanged_route_is_known_with_the_next_request() -> None:
    async with titled("all-prompts") as it:
        await it.prompt("one")
        headers = types(it.agent.session).count("request/header")
        await it.prompt("two")

        assert types(it.agent.session).count("request/header") == headers
        assert len(it.provider.requests) == 2


@aio
async def test_newer_work_takes_the_place_of_older() -> None:
    async with titled("all-prompts") as it:
        it.provider.gate.clear()
        await it.prompt("one")
        await it.prompt("two")
        first, second = it.provider.requests

        assert (first.signal.cancelled, second.signal.cancelled) == (True, False)
        it.provider.gate.set()
        await until(lambda: it.titles[-1][1] == "provider")
        assert it.titles == [("one", "fallback"), ("title 2", "provider")]
        assert it.provider.cancelled == 1


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("no model"),
        SystemExit(3),
        ProvidedTitle(title="\u200b \x1b[31m", message_seqs=(4,)),
        ProvidedTitle(title="x", message_seqs=()),
        ProvidedTitle(title="x", message_seqs=(0,)),
        ProvidedTitle(title="x", message_seqs=(4, 4)),
        ProvidedTitle(title="x", message_seqs=(4,), model=Route("p", "")),
    ],
    ids=["raises", "exits", "empty", "no-seqs", "other-seqs", "twice", "half-a-model"],
)
@aio
async def test_a_failure_costs_the_title_and_one_warning(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with titled() as it:
        it.provider.answer = answer
        await it.prompt("go")

        assert (it.provider.requests[0].prompts[0].seq, it.titles) == (4, [("go", "fallback")])
        assert len([r for r in caplog.records if "keeps its title" in r.getMessage()]) == 1
        assert data_of(it.agent.session, "turn/end")[-1]["reason"]["kind"] == "completed"


@aio
async def test_an_answer_is_cut_and_cleaned_and_its_model_is_logged() -> None:
    async with titled() as it:
        it.provider.answer = ProvidedTitle(
            title=" a\x1b[31m very\nlong title indeed ", message_seqs=(4,), model=Route("p", "small")
        )
        await it.prompt("go")

        assert it.titles[-1] == ("a very long title in", "provider")
        last = it.agent.session.last("session/title")
        assert last is not None
        assert dict(last.data["source"]["model"]) == {"provider": "p", "model": "small"}


@aio
async def test_a_child_of_another_session_and_a_titled_one_are_not_asked_for() -> None:
    async with titled(parent_session="parent") as it:
        await it.prompt("go")
        assert (it.provider.requests, it.titles) == ([], [("go", "fallback")])
    async with titled() as it:
        it.service.rename(it.agent.session, "mine")
        await it.prompt("go")
        assert (it.provider.requests, it.titles) == ([], [("mine", "user")])


@aio
async def test_what_a_person_writes_cancels_what_is_under_way_and_stays() -> None:
    async with titled("all-prompts") as it:
        it.provider.gate.clear()
        await it.prompt("one")
        assert it.service.rename(it.agent.session, "  my \x1b[1mtitle ") == "my title"
        assert it.provider.requests[0].signal.cancelled
        it.provider.gate.set()
        await it.prompt("two")

        assert it.titles == [("one", "fallback"), ("my title", "user")]
        last = it.agent.session.last("session/title")
        assert last is not None
        assert list(last.data["messageSeqs"]) == []
        assert len(it.provider.requests) == 1


@aio
async def test_an_explicit_refresh_asks_again_also_over_a_person_s_title() -> None:
    async with titled("all-prompts") as it:
        await it.prompt("one")
        it.service.rename(it.agent.session, "mine")

        assert await it.service.refresh(it.agent.session) == "title 2"
        await it.prompt("two")  # the title is not pinned any more
        assert it.titles[-2:] == [("title 2", "provider"), ("title 3", "provider")]


@aio
async def test_a_refresh_that_fails_tells_its_caller() -> None:
    async with titled() as it:
        await it.prompt("one")
        it.provider.answer = RuntimeError("no model")
        with pytest.raises(RuntimeError, match="no model"):
            await it.service.refresh(it.agent.session)
        assert it.titles[-1] == ("title 1", "provider")


@aio
async def test_a_rename_during_a_refresh_wins() -> None:
    async with titled() as it:
        await it.prompt("one")
        it.provider.gate.clear()
        refreshing = asyncio.create_task(it.service.refresh(it.agent.session))
        await until(lambda: len(it.provider.requests) == 2)
        it.service.rename(it.agent.session, "mine")

        assert await refreshing is None
        assert it.titles[-1] == ("mine", "user")


@aio
async def test_of_two_refreshes_the_later_one_counts() -> None:
    async with titled() as it:
        await it.prompt("one")
        it.provider.gate.clear()
        first = asyncio.create_task(it.service.refresh(it.agent.session))
        await until(lambda: len(it.provider.requests) == 2)
        second = asyncio.create_task(it.service.refresh(it.agent.session))
        await until(lambda: len(it.provider.requests) == 3)
        it.provider.gate.set()

        assert (await first, await second) == (None, "title 3")
        assert it.titles[-2:] == [("title 1", "provider"), ("title 3", "provider")]


@aio
async def test_who_stops_waiting_for_a_refresh_stops_it() -> None:
    async with titled() as it:
        await it.prompt("one")
        it.provider.gate.clear()
        refreshing = asyncio.create_task(it.service.refresh(it.agent.session))
        await until(lambda: len(it.provider.requests) == 2)
        refreshing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await refreshing
        it.provider.gate.set()
        await asyncio.sleep(0.01)

        assert (it.provider.cancelled, it.titles[-1]) == (1, ("title 1", "provider"))
        assert await it.service.refresh(it.agent.session) == "title 3"


@aio
async def test_an_answer_after_the_cancel_is_dropped_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """A provider that goes on when it is told to stop."""

    class Stubborn(Provider):
        async def generate(self, request: TitleRequest) -> ProvidedTitle:
            while True:
                try:
                    return await super().generate(request)
                except asyncio.CancelledError:
                    self.answer = RuntimeError("too late")

    async with loop(text("done"), rows=[(session_title, CONFIG)]) as it:
        provider = Stubborn()
        it.ctx.use(TITLES).register(provider)
        agent = await it.agent()
        provider.gate.clear()
        await it.prompt(agent, "go")
        await until(lambda: bool(provider.requests))
        it.ctx.use(TITLES).rename(agent.session, "mine")
        await until(lambda: provider.cancelled == 1)
        provider.gate.set()
        await asyncio.sleep(0.01)

        assert data_of(agent.session, "session/title")[-1]["title"] == "mine"
        assert [r.message for r in caplog.records if r.levelname in ("WARNING", "ERROR")] == []


@aio
async def test_without_a_provider_a_refresh_writes_the_fallback() -> None:
    async with loop(text("done"), rows=[(session_title, CONFIG)]) as it:
        agent = await it.agent()
        service = it.ctx.use(TITLES)
        assert await service.refresh(agent.session) is None
        await it.prompt(agent, "the first prompt")
        service.rename(agent.session, "mine")

        assert await service.refresh(agent.session) == "the first prompt"
        assert service.title(agent.session) == "the first prompt"


@pytest.mark.parametrize("title", ["", "  ", "\x1b[31m", "\u200b\u2060"])
@aio
async def test_a_title_that_shows_nothing_is_refused(title: str) -> None:
    async with titled() as it:
        with pytest.raises(SessionTitleInvalidError) as refused:
            it.service.rename(it.agent.session, title)
        assert refused.value.code == "SESSION_TITLE_INVALID"
        assert it.titles == []


@aio
async def test_a_second_provider_is_refused_and_the_first_makes_room_when_it_goes() -> None:
    async with loop(rows=[(session_title, CONFIG)]) as it:
        service = it.ctx.use(TITLES)
        first = service.register(Provider())
        with pytest.raises(SessionTitleError) as refused:
            service.register(Provider())
        assert refused.value.code == "SESSION_TITLE_PROVIDER_EXISTS"

        first()
        service.register(Provider())


@aio
async def test_a_provider_that_goes_takes_its_work_along() -> None:
    async with loop(text("done"), rows=[(session_title, CONFIG)]) as it:
        provider = Provider()
        registered = it.ctx.use(TITLES).register(provider)
        agent = await it.agent()
        provider.gate.clear()
        await it.prompt(agent, "go")
        registered()
        provider.gate.set()
        await asyncio.sleep(0.01)

        assert provider.requests[0].signal.cancelled
        assert [row["title"] for row in data_of(agent.session, "session/title")] == ["go"]


@aio
async def test_the_end_of_the_session_and_of_the_row_end_the_work() -> None:
    async with titled() as it:
        it.provider.gate.clear()
        handle = await it.it.create(session_id="other")
        await it.it.prompt(handle.agent, "go")
        await handle.dispose()
        assert it.provider.requests[0].signal.cancelled
        with pytest.raises(SessionNotLive):
            it.service.rename(handle.agent.session, "late")
        await it.prompt("still under way")
    assert it.provider.cancelled == 2


@aio
async def test_an_observer_of_the_log_cannot_rename() -> None:
    async with titled() as it:
        raised: list[Exception] = []

        def rename(_: Any) -> None:
            try:
                it.service.rename(it.agent.session, "now")
            except ReentrantAppend as error:
                raised.append(error)

        it.it.when("turn/start", rename)
        await it.prompt("go")
        assert len(raised) == 1
        assert ("now", "user") not in it.titles


@aio
async def test_messages_of_others_are_not_prompts() -> None:
    async with titled("all-prompts") as it:
        it.agent.inject(user_message("from a plugin", {"kind": "plugin", "plugin": "x"}))
        await it.prompt("mine")
        assert [[p.text for p in r.prompts] for r in it.provider.requests] == [["mine"]]


@aio
async def test_a_provider_that_fails_because_it_was_told_to_stop_is_not_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Quick(Provider):
        async def generate(self, request: TitleRequest) -> ProvidedTitle:
            self.requests.append(request)
            answer: asyncio.Future[ProvidedTitle] = asyncio.get_running_loop().create_future()
            request.signal.on_cancel(lambda _: answer.set_exception(RuntimeError("I was told to stop")))
            return await answer

    async with loop(text("done"), rows=[(session_title, CONFIG)]) as it:
        provider = Quick()
        it.ctx.use(TITLES).register(provider)
        agent = await it.agent()
        await it.prompt(agent, "go")
        await until(lambda: bool(provider.requests))
        it.ctx.use(TITLES).rename(agent.session, "mine")
        await asyncio.sleep(0.01)

        assert [r.message for r in caplog.records if r.levelname in ("WARNING", "ERROR")] == []


@aio
async def test_a_call_beside_the_turns_does_not_tell_which_model_the_session_has() -> None:
    async with titled() as it:

        async def beside(_: RequestSeed, following: Any) -> Any:
            config = LlmCallConfig(provider="p", model="other")
            message = user_message("beside", {"kind": "plugin", "plugin": "x"})
            await ask(
                it.it.llm,
                LlmRequest(
                    config=config, messages=(message,), session_id=it.agent.session.id, purpose="compaction"
                ),
            )
            return await following()

        it.it.ctx.on(AGENT_REQUEST, beside)
        await it.prompt("go")

        assert [request.route for request in it.provider.requests] == [Route("p", "m")]


def test_a_prompt_that_was_cut_is_no_new_one_and_no_log_is_read_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk, prompts = Talk(), Prompts()
    talk.turn()
    talk.step()
    first = talk.user("a long prompt")
    starts: list[int] = []
    select = Session.select

    def watched(self: Session, *kinds: str, start: int = 0) -> Any:
        starts.append(start)
        return select(self, *kinds, start=start)

    monkeypatch.setattr(Session, "select", watched)
    assert [prompt.text for prompt in prompts.of(talk.log)] == ["a long prompt"]
    length = talk.log.length
    place = {"op": "replace", "start": first, "end": first}
    talk.put("user/message", dict(user_message("a long")), surface=place, sources=[first])
    talk.user("another")

    assert [prompt.text for prompt in prompts.of(talk.log)] == ["a long prompt", "another"]
    assert starts == [0, length]


@aio
async def test_a_title_that_somebody_writes_before_the_fallback_stays() -> None:
    async with loop(text("done")) as it:

        def write(session: Session) -> None:
            titled = {"title": "mine", "messageSeqs": [], "source": {"kind": "user"}}
            asyncio.get_running_loop().call_soon(session.append, "session/title", titled)

        it.when("user/message", write)
        await settled(it.ctx.plugin(session_title, CONFIG))
        agent = await it.agent()
        await it.prompt(agent, "go")

        assert [row["title"] for row in data_of(agent.session, "session/title")] == ["mine"]


@aio
async def test_a_later_prompt_is_not_asked_about_where_only_the_first_is() -> None:
    async with titled() as it:
        it.provider.answer = RuntimeError("no model")
        await it.prompt("\u200b")
        await it.prompt("two")

        assert [[prompt.text for prompt in r.prompts] for r in it.provider.requests] == [["\u200b"]]
