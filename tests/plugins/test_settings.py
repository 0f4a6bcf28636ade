"""The service `settings`: layers, writes, revisions, who is told, and what ends with whom."""

import asyncio
import math
from typing import Any

import msgspec
import pytest

from dsh.capabilities.settings import (
    SETTINGS_DOCUMENT_UPDATED,
    SETTINGS_UPDATED,
    SettingsChange,
    SettingsConflict,
    SettingsDocumentUpdated,
    SettingsError,
    SettingsScope,
    SettingsSectionError,
    SettingsUpdated,
)
from dsh.kernel import Context, ValidationError
from dsh.plugins.settings.document import MemoryStore, Plan
from tests.aio import aio
from tests.plugins.settings_kit import Limits, Options, Settled, in_memory, stored


def registered(at: Settled, namespace: str = "mine", **options: Any) -> SettingsScope[Options]:
    return at.service.register(namespace, Options, **options)


# -- layers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "user", "expected"),
    [
        (None, None, {}),
        ({"name": "row"}, None, {"name": "row"}),
        (None, {"name": "user"}, {"name": "user"}),
        ({"name": "row", "count": 3}, {"name": "user"}, {"name": "user", "count": 3}),
        ({"limits": {"lowMs": 5, "highMs": 6}}, {"limits": {"lowMs": 7}}, {"limits": Limits(7, 6)}),
        (None, {"limits": {"highMs": 7}}, {"limits": Limits(1, 7)}),
        ({"tags": ["a", "b"]}, {"tags": ["c"]}, {"tags": ("c",)}),
        ({"tags": ["a"]}, {"tags": []}, {"tags": ()}),
        ({"count": 3}, {"count": None}, {"count": 1}),
        (Options(name="struct", tags=("x",)), {"count": 2}, {"name": "struct", "tags": ("x",), "count": 2}),
    ],
)
@aio
async def test_schema_defaults_below_the_row_s_config_below_the_section(
    base: Any, user: Any, expected: dict[str, Any]
) -> None:
    async with in_memory(**({} if user is None else {"mine": user})) as at:
        assert registered(at, base=base).get() == Options(**expected)


@pytest.mark.parametrize("namespace", ["", "Mine", "1a", "a_b", "-a", "a.b", "a\n"])
@aio
async def test_a_namespace_is_lower_case_letters_digits_and_dashes(namespace: str) -> None:
    async with in_memory() as at:
        with pytest.raises(SettingsError) as caught:
            registered(at, namespace)
        assert caught.value.code == "SETTINGS_NAMESPACE"


@aio
async def test_a_section_has_one_owner_until_that_is_gone() -> None:
    async with in_memory(mine={"count": 4}) as at:
        first: list[SettingsScope[Options]] = []

        def owner(ctx: Context) -> None:
            first.append(ctx.settings.register("mine", Options))

        fiber = await at.ctx.plugin(owner, inject=["settings"])
        with pytest.raises(SettingsError, match="have an owner already") as caught:
            registered(at)
        assert caught.value.code == "SETTINGS_DUPLICATE"

        await fiber.dispose()
        with pytest.raises(SettingsError) as late:
            await first[0].update({"count": 5})
        assert late.value.code == "SETTINGS_DISPOSED"
        assert registered(at).get().count == 4


@aio
async def test_a_section_is_shared_by_those_that_say_so_and_mean_the_same() -> None:
    async with in_memory() as at:
        registered(at, "both", shared=True)
        registered(at, "alone")
        for namespace, schema, shared in (
            ("both", Options, False),
            ("alone", Options, True),
            ("both", Limits, True),
        ):
            with pytest.raises(SettingsError, match="have an owner already: ") as caught:
                at.service.register(namespace, schema, shared=shared)
            assert caught.value.code == "SETTINGS_DUPLICATE"
        registered(at, "both", shared=True)
        assert [one.ns for one in at.service.describe()] == ["both", "both", "alone"]
        assert [one.ns for one in at.service.describe("both")] == ["both", "both"]
        assert at.service.describe("none") == []


@aio
async def test_owners_of_one_section_have_each_their_base_and_see_each_other_s_writes() -> None:
    async with in_memory(mine={"name": "user"}) as at:
        events: list[SettingsUpdated] = []
        documents: list[SettingsDocumentUpdated] = []
        at.ctx.on(SETTINGS_UPDATED, events.append)
        at.ctx.on(SETTINGS_DOCUMENT_UPDATED, documents.append)
        one = registered(at, base={"count": 3}, shared=True)
        two = registered(at, base={"count": 4}, shared=True)
        assert (one.get(), two.get()) == (Options(name="user", count=3), Options(name="user", count=4))

        assert await one.update({"name": "x"}, expected_revision=0) == 1
        assert (one.get().name, two.get().name, two.revision) == ("x", "x", 1)
        assert [event.next.count for event in events] == [3, 4]
        await two.update({"count": 4})
        assert (one.get().count, two.get().count) == (4, 4)
        assert [event.prev.count for event in events[2:]] == [3]
        assert [event.revision for event in documents] == [1, 2]


@aio
async def test_what_one_owner_of_a_section_refuses_counts_for_none(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(value: Options) -> None:
        if value.count > 5:
            raise ValueError("count is too much for me")

    async with in_memory(mine={"count": 2}) as at:
        one = registered(at, shared=True)
        two = registered(at, shared=True, validate=refuse)
        with pytest.raises(SettingsSectionError, match="too much for me"):
            await one.update({"count": 6})
        at.store.put("mine", {"count": 7})
        await at.service.reload()
        assert (one.get().count, two.get().count) == (2, 2)
        assert caplog.text.count("too much for me") == 1


@aio
async def test_a_section_lives_as_long_as_the_last_of_its_owners() -> None:
    async with in_memory() as at:
        scopes: list[SettingsScope[Options]] = []

        def owner(ctx: Context) -> None:
            scopes.append(ctx.settings.register("mine", Options, shared=True))

        fibers = [await at.ctx.plugin(owner, inject=["settings"]) for _ in range(2)]
        await fibers[0].dispose()
        with pytest.raises(SettingsError, match="have no owner any more"):
            await scopes[0].update({"count": 2})
        await scopes[1].update({"count": 3})
        await at.service.update("mine", {"name": "x"})
        assert scopes[1].get() == Options(count=3, name="x")
        await fibers[1].dispose()
        assert at.service.describe() == []


@aio
async def test_an_owner_that_joins_while_a_section_is_written_sees_what_was_written() -> None:
    class Slow(MemoryStore):
        async def write(self, plan: Plan) -> Any:
            document = await super().write(plan)
            joined.append(registered(at, shared=True))
            return document

    joined: list[SettingsScope[Options]] = []
    async with stored(Slow({"mine": {"count": 2}})) as at:
        await registered(at, shared=True).update({"count": 3})
        assert joined[0].get().count == 3


@pytest.mark.parametrize("error", [KeyError("hush"), RuntimeError("hush"), SystemExit(3)])
@aio
async def test_an_owner_whose_judge_fails_has_refused_the_section(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def judge(value: Options) -> None:
        if value.count == 2:
            raise error

    async with in_memory() as at:
        scope = registered(at, validate=judge)
        with pytest.raises(SettingsSectionError, match="failed to judge it"):
            await scope.update({"count": 2})
        at.store.put("mine", {"count": 2})
        await at.service.reload()
        assert scope.get() == Options()
        assert caplog.text.count("failed to judge it") == 1
        assert "hush" not in caplog.text


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"count": 0}, r"settings mine\.count: expected integer >= 1\Z"),
        ({"mode": "c"}, r"settings mine\.mode: expected a \| b"),
        ({"limits": {"lowMs": "x"}}, r"settings mine\.limits\.lowMs: expected integer but got string"),
        ({"nmae": "x"}, r"settings mine: unknown key 'nmae'"),
        ([1], "a section must be a mapping, not a list"),
        ("text", "a section must be a mapping, not a string"),
    ],
)
@aio
async def test_a_stored_section_that_does_not_fit_fails_the_registration(section: Any, words: str) -> None:
    async with in_memory(mine=section) as at:
        with pytest.raises(SettingsSectionError, match=words) as caught:
            registered(at)
        assert (caught.value.code, caught.value.exit_code) == ("SETTINGS_INVALID", 3)
        assert at.service.describe() == []


@aio
async def test_the_owner_judges_what_the_schema_cannot() -> None:
    def refuse(value: Options) -> None:
        if value.count > 5:
            raise ValidationError("too many", "count")
        if value.name == "bad":
            raise ValueError("no such name")

    async with in_memory(mine={"count": 6}) as at:
        with pytest.raises(SettingsSectionError, match=r"settings mine\.count: too many"):
            registered(at, validate=refuse)
        scope = registered(at, "other", validate=refuse)
        with pytest.raises(SettingsSectionError, match="settings other: no such name"):
            await scope.update({"name": "bad"})
        assert scope.get() == Options()


class Loose(msgspec.Struct):
    """A section that can be changed in place."""

    items: list[str] = msgspec.field(default_factory=list)


@aio
async def test_what_is_handed_out_cannot_be_changed_for_others() -> None:
    async with in_memory(mine={"items": ["a"]}) as at:
        scope = at.service.register("mine", Loose)
        scope.get().items.append("b")
        assert scope.get().items == ["a"]
        described = at.service.describe()[0]
        described.user["items"].append("c")
        assert scope.get().items == ["a"]


# -- writes ----------------------------------------------------------------------------------------


@aio
async def test_update_merges_replace_replaces_and_both_are_stored() -> None:
    store = MemoryStore({"mine": {"name": "x", "limits": {"lowMs": 2}}, "other": 1})
    async with stored(store) as at:
        scope = registered(at)
        assert await scope.update({"limits": {"highMs": 3}, "tags": ["t"]}) == 1
        assert store.sections["mine"] == {"name": "x", "limits": {"lowMs": 2, "highMs": 3}, "tags": ["t"]}
        assert await at.service.update("mine", {"name": None, "tags": None}) == 2
        assert store.sections["mine"] == {"limits": {"lowMs": 2, "highMs": 3}}
        assert await scope.replace({"count": 9}) == 3
        assert store.sections == {"mine": {"count": 9}, "other": 1}
        assert scope.get() == Options(count=9)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("set", ("name",), "y")], {"name": "y"}),
        ([("set", ("limits", "lowMs"), 4)], {"name": "x", "limits": {"lowMs": 4}}),
        ([("unset", ("name",), None)], {}),
        ([("unset", ("limits", "lowMs"), None), ("unset", ("none", "deep"), None)], {"name": "x"}),
        ([("set", (), {"count": 2}), ("set", ("tags",), ["a"])], {"count": 2, "tags": ["a"]}),
        ([("unset", (), None)], None),
    ],
)
@aio
async def test_mutate_does_its_steps_in_order(changes: list[Any], expected: Any) -> None:
    store = MemoryStore({"mine": {"name": "x"}})
    async with stored(store) as at:
        registered(at)
        await at.service.mutate("mine", [SettingsChange(*change) for change in changes])
        assert store.sections.get("mine") == expected


@aio
async def test_steps_are_made_all_or_none() -> None:
    store = MemoryStore({"mine": {"name": "x"}})
    async with stored(store) as at:
        scope = registered(at)
        for changes in (
            [SettingsChange("set", ("count",), 3), SettingsChange("set", ("name", "deep"), 1)],
            [SettingsChange("set", ("count",), 3), SettingsChange("set", ("mode",), "z")],
        ):
            with pytest.raises(SettingsSectionError):
                await scope.mutate(changes)
        assert (store.sections, scope.revision) == ({"mine": {"name": "x"}}, 0)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": math.nan}, r"\$\.a"),
        ({"a": [1, math.inf]}, r"\$\.a\[1\]"),
        ({"a": {"b": object()}}, r"\$\.a\.b"),
        ({"a": {1: 2}}, r"\$\.a"),
        ({"a": b"x"}, r"\$\.a"),
    ],
)
@aio
async def test_only_json_data_is_written_and_the_error_says_where(value: Any, where: str) -> None:
    async with in_memory() as at:
        scope = registered(at)
        for write in (scope.update, scope.replace):
            with pytest.raises(SettingsError, match=where) as caught:
                await write(value)
            assert caught.value.code == "SETTINGS_NOT_JSON"


@aio
async def test_a_cycle_is_refused() -> None:
    cycle: dict[str, Any] = {}
    cycle["a"] = cycle
    async with in_memory() as at:
        with pytest.raises(SettingsError, match=r"\$\.a: found a cycle"):
            await registered(at).update(cycle)


@aio
async def test_what_is_written_is_copied_when_it_is_asked_for() -> None:
    async with in_memory() as at:
        scope = registered(at)
        patch = {"tags": ["a"]}
        write = scope.update(patch)
        patch["tags"].append("b")
        await write
        assert scope.get().tags == ("a",)


@aio
async def test_writes_happen_in_the_order_in_which_they_were_asked_for() -> None:
    async with in_memory() as at:
        scope = registered(at)
        writes = [scope.update({"count": count}) for count in range(1, 20)]
        assert await asyncio.gather(*writes) == list(range(1, 19 + 1))
        assert scope.get().count == 19


@aio
async def test_a_write_that_nobody_awaits_or_gives_up_on_happens() -> None:
    store = MemoryStore()
    async with stored(store) as at:
        registered(at).update({"count": 2})
    assert store.sections == {"mine": {"count": 2}}


@aio
async def test_a_revision_that_has_passed_is_a_conflict_and_hinders_no_later_write() -> None:
    async with in_memory() as at:
        scope = registered(at)
        assert await scope.update({"count": 2}, expected_revision=0) == 1
        with pytest.raises(SettingsConflict) as caught:
            await scope.update({"count": 3}, expected_revision=0)
        assert (caught.value.expected, caught.value.actual, caught.value.code) == (0, 1, "SETTINGS_CONFLICT")
        assert await scope.update({"count": 4}, expected_revision=1) == 2
        assert scope.get().count == 4


@aio
async def test_a_write_that_says_what_is_there_changes_no_revision() -> None:
    async with in_memory(mine={"count": 2}) as at:
        scope = registered(at)
        assert await scope.update({"count": 2}) == 0
        assert await scope.replace({"count": 2}) == 0


@aio
async def test_writing_to_a_namespace_without_an_owner_is_an_error() -> None:
    async with in_memory(mine={}) as at:
        with pytest.raises(SettingsError, match="settings mine have no owner") as caught:
            await at.service.update("mine", {})
        assert caught.value.code == "SETTINGS_UNREGISTERED"


class Failing(MemoryStore):
    """A store whose next write fails."""

    fails = False

    async def write(self, plan: Plan) -> Any:
        if self.fails:
            self.fails = False
            plan(self.load())
            raise SettingsError("disk full", code="SETTINGS_UNWRITABLE")
        return await super().write(plan)


@aio
async def test_what_could_not_be_stored_does_not_count() -> None:
    store = Failing()
    async with stored(store) as at:
        scope = registered(at)
        store.fails = True
        with pytest.raises(SettingsError, match="disk full"):
            await scope.update({"count": 2})
        assert (scope.get(), scope.revision) == (Options(), 0)
        assert await scope.update({"count": 3}) == 1


# -- who is told -----------------------------------------------------------------------------------


@aio
async def test_events_tell_of_the_value_only_when_it_changed_and_of_the_document_always() -> None:
    async with in_memory() as at:
        scope = registered(at)
        values: list[SettingsUpdated] = []
        documents: list[SettingsDocumentUpdated] = []
        at.ctx.on(SETTINGS_UPDATED, values.append)
        at.ctx.on(SETTINGS_DOCUMENT_UPDATED, documents.append)

        await scope.update({"count": 1})  # the default, written out
        assert values == []
        assert documents == [SettingsDocumentUpdated("mine", 1)]
        await scope.update({"count": 2})
        assert values == [SettingsUpdated("mine", Options(count=2), Options(), "update")]

        at.store.put("mine", {"count": 3})
        await at.service.reload()
        assert values[1:] == [SettingsUpdated("mine", Options(count=3), Options(count=2), "provider")]
        assert [one.revision for one in documents] == [1, 2, 3]


@aio
async def test_watchers_are_told_one_after_the_other_in_the_order_of_the_changes() -> None:
    async with in_memory() as at:
        scope = registered(at)
        told: list[Any] = []
        running = 0

        async def slow(now: Options, before: Options) -> None:
            nonlocal running
            running += 1
            assert running == 1
            await asyncio.sleep(0.001)
            told.append(("slow", before.count, now.count))
            running -= 1

        def broken(now: Options, before: Options) -> None:
            raise RuntimeError("of a watcher")

        scope.watch(broken)
        scope.watch(slow)
        quick = scope.watch(lambda now, before: told.append(("quick", before.count, now.count)))
        await asyncio.gather(scope.update({"count": 2}), scope.update({"count": 3}))
        async with asyncio.timeout(5):
            while len(told) < 4:
                await asyncio.sleep(0.001)
        assert told == [("slow", 1, 2), ("quick", 1, 2), ("slow", 2, 3), ("quick", 2, 3)]
        quick()
        await scope.update({"count": 4})
        await asyncio.sleep(0.01)
        assert told[4:] == [("slow", 3, 4)]


@aio
async def test_the_end_of_an_owner_waits_for_its_watcher_and_tells_nobody_afterwards() -> None:
    async with in_memory() as at:
        told: list[int] = []
        scopes: list[SettingsScope[Options]] = []
        release = asyncio.Event()

        async def watcher(now: Options, before: Options) -> None:
            await release.wait()
            told.append(now.count)

        def owner(ctx: Context) -> None:
            scope = ctx.settings.register("mine", Options)
            scope.watch(watcher)
            scopes.append(scope)

        fiber = await at.ctx.plugin(owner, inject=["settings"])
        await asyncio.gather(scopes[0].update({"count": 2}), scopes[0].update({"count": 3}))
        ending = asyncio.ensure_future(fiber.dispose())
        await asyncio.sleep(0.01)
        assert not ending.done()
        release.set()
        await ending
        assert told == [2]


# -- changes from outside --------------------------------------------------------------------------


@aio
async def test_an_invalid_section_keeps_the_last_good_value_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with in_memory(mine={"count": 2}, other={"count": 5}) as at:
        mine, other = registered(at), registered(at, "other")
        at.store.put("mine", {"count": 0})
        at.store.put("other", {"count": 6})
        await at.service.reload()
        await at.service.reload()
        assert (mine.get().count, other.get().count) == (2, 6)
        assert mine.revision == 1
        assert caplog.text.count("settings mine.count: expected") == 1

        at.store.put("mine", {"count": 3})
        await at.service.reload()
        assert mine.get().count == 3


@aio
async def test_a_section_that_is_gone_is_an_empty_one() -> None:
    async with in_memory(mine={"count": 2}) as at:
        scope = registered(at, base={"name": "row"})
        at.store.put("mine", None)
        await at.service.reload()
        assert scope.get() == Options(name="row")


@aio
async def test_a_write_over_an_edit_from_outside_keeps_both_and_knows_the_conflict() -> None:
    async with in_memory(mine={"count": 2}) as at:
        scope = registered(at)
        at.store.put("mine", {"count": 2, "name": "outside"})
        with pytest.raises(SettingsConflict):
            await scope.update({"count": 3}, expected_revision=0)
        await scope.update({"count": 3})
        assert scope.get() == Options(count=3, name="outside")


@aio
async def test_an_invalid_section_can_be_repaired_by_a_write() -> None:
    async with in_memory(mine={"count": 2}) as at:
        scope = registered(at)
        at.store.put("mine", {"count": 0, "name": "kept"})
        await at.service.reload()
        await scope.update({"count": 7})
        assert scope.get() == Options(count=7, name="kept")
