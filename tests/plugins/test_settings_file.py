"""The row `settings`: a document of the home that people, dsh and other processes write."""

import asyncio
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from dsh.capabilities.settings import SETTINGS, SettingsError, SettingsSectionError
from dsh.capabilities.user_document import UserDocument
from dsh.composition.text.yaml import read_yaml
from dsh.errors import CompositionError
from dsh.kernel import Context, ValidationError
from dsh.plugins.settings.document import FileStore
from dsh.plugins.settings.service import SettingsService
from tests.aio import aio
from tests.plugins.settings_kit import Options, at_home, stored

DOCUMENT = """\
# mine, do not touch
mine:
  count: 2   # two
  limits: {lowMs: 3}

other:      # of somebody else
  - kept
"""


def service(ctx: Context) -> SettingsService:
    found = ctx.get(SETTINGS)
    assert isinstance(found, SettingsService)
    return found


@pytest.mark.parametrize("text", [None, "", "# nothing yet\n", "~\n"])
@aio
async def test_a_document_that_is_missing_or_empty_has_no_sections(tmp_path: Path, text: str | None) -> None:
    async with at_home(tmp_path, text) as ctx:
        assert service(ctx).register("mine", Options).get() == Options()
    assert [path.name for path in tmp_path.iterdir()] == ([] if text is None else ["settings.yaml"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n", "settings must be a mapping of sections, not a list"),
        ("hush\n", "settings must be a mapping of sections, not a string"),
        ("mine: {hush\n", ":2:1: the mapping that starts in line 1 needs `,` or `}` here"),
        ("mine: [hush\na: 1\n", "the list that starts in line 1 needs `,` or `]` here"),
        ("mine: 1\nmine: hush\n", ":2:1: a key stands there twice; first in line 1"),
        ("a: b\n---\nhush: 1\n", ":2:1: a second document starts here"),
        ("mine:\n\thush: 1\n", ":2:1: a tab indents this line"),
        ("mine: 'hush\n", ":1:7: a quoted text starts here and never ends"),
        ("mine: hush: hush\n", ":1:11: a colon where no key can stand"),
        ("mine: .nan\n", ":1:7: this is not a finite number"),
        ("mine: !hush 1\n", ":1:7: this cannot be read as YAML"),
        ("mine: *hush\n", ":1:7: an alias of nothing that stands above"),
        ("? [hush]\n: 1\n", "a key must be a scalar"),
    ],
)
@aio
async def test_a_document_that_cannot_be_read_stops_the_start_and_is_not_quoted(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        async with at_home(tmp_path, text):
            pass
    assert words in caught.value.message
    assert caught.value.message.startswith(f"{tmp_path}/settings.yaml:")
    assert "hush" not in caught.value.message
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
@aio
async def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "settings.yaml"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case _:
            path.symlink_to("/dev/zero")
    with pytest.raises(SettingsError, match="not a file"):
        async with at_home(tmp_path):
            pass


@pytest.mark.parametrize(
    ("section", "place", "words"),
    [
        ("mine:\n  name: x\n  count: 0\n", ":3:10: settings mine.count: ", "expected"),
        ("mine:\n  name: x\n  nmae: y\n", ":3:3: settings mine: ", "unknown key 'nmae'"),
        ("mine:\n  limits:\n    lowMs: fast\n", ":3:12: settings mine.limits.lowMs: ", "expected integer"),
        ("mine:\n  name: x\n  count: 66\n", ":3:10: settings mine: ", "a count above 65 is too many"),
        ("a: 1\nmine: text\n", ":2:1: settings mine: ", "must be a mapping, not a string"),
        ("mine:\n  name: !expr env.X\n", ":2:9: settings mine: ", "expressions are for rows"),
    ],
)
@aio
async def test_a_section_that_is_not_accepted_is_named_by_file_line_and_key(
    tmp_path: Path, section: str, place: str, words: str
) -> None:
    def judge(value: Options) -> None:
        if value.count > 65:
            raise ValueError("a count above 65 is too many")

    async with at_home(tmp_path, section) as ctx:
        with pytest.raises(SettingsSectionError) as caught:
            service(ctx).register("mine", Options, validate=judge)
    assert caught.value.message.startswith(f"{tmp_path}/settings.yaml{place}")
    assert words in caught.value.message


@pytest.mark.parametrize(
    "section",
    [
        "mine:\n  count: 0\n",
        "mine:\n  nmae: y\n",
        "mine:\n  limits:\n    lowMs: fast\n",
        "mine:\n  count: 66\n",
        "mine: text\n",
        "mine:\n  name: !expr env.X\n",
        "mine: {hush\n",
        "- a\n",
    ],
)
@aio
async def test_a_mistake_is_told_in_the_same_words_at_start_and_while_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, section: str
) -> None:
    def judge(value: Options) -> None:
        if value.count > 65:
            raise ValidationError("too many", "count", hint="at most 65")

    with pytest.raises(SettingsError) as caught:
        async with at_home(tmp_path, section) as ctx:
            service(ctx).register("mine", Options, validate=judge)
    hint = f" ({caught.value.hint})" if caught.value.hint else ""

    async with at_home(tmp_path, "mine: {count: 7}\n", watch=False) as ctx:
        scope = service(ctx).register("mine", Options, validate=judge)
        (tmp_path / "settings.yaml").write_text(section)
        await service(ctx).reload()
        assert scope.get().count == 7
    [told] = caplog.messages
    words, _, rest = told.rpartition("; ")
    assert words == f"{caught.value.message}{hint}"
    assert rest in ("what was valid before still counts", "the settings read before still count")


@aio
async def test_a_write_keeps_comments_and_every_other_section(tmp_path: Path) -> None:
    async with at_home(tmp_path, DOCUMENT) as ctx:
        scope = service(ctx).register("mine", Options)
        await scope.update({"count": 5, "limits": {"highMs": 9}})
    text = (tmp_path / "settings.yaml").read_text()
    assert "# mine, do not touch\n" in text
    assert "count: 5   # two\n" in text
    assert "other:      # of somebody else\n  - kept\n" in text
    assert read_yaml(tmp_path / "settings.yaml") == {
        "mine": {"count": 5, "limits": {"lowMs": 3, "highMs": 9}},
        "other": ["kept"],
    }


@aio
async def test_a_new_document_and_its_folder_are_their_owner_s_alone(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    async with stored(FileStore(home / "settings.yaml")) as at:
        await at.service.register("mine", Options).update({"count": 3})
    assert stat.S_IMODE((home / "settings.yaml").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert (home / "settings.yaml").read_text() == "mine:\n  count: 3\n"
    assert not list(home.glob("*.tmp"))


@aio
async def test_an_edit_from_outside_counts_and_a_broken_one_keeps_what_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "settings.yaml"
    async with at_home(tmp_path, DOCUMENT, watch=False) as ctx:
        scope = service(ctx).register("mine", Options)
        path.write_text("mine: {count: 7}\n")
        await service(ctx).reload()
        assert scope.get().count == 7

        for text in ("mine: {count: 7\n", "mine: {count: -7}\n", "- 7\n"):
            path.write_text(text)
            await service(ctx).reload()
            await service(ctx).reload()
            assert scope.get().count == 7
        assert len(caplog.messages) == 3
        assert "the settings read before still count" in caplog.messages[0]

        path.unlink()
        await service(ctx).reload()
        assert scope.get() == Options()


@aio
async def test_an_edit_is_seen_while_nobody_asks(tmp_path: Path) -> None:
    seen = asyncio.Event()
    async with at_home(tmp_path, DOCUMENT, debounceMs=0) as ctx:
        scope = service(ctx).register("mine", Options)
        scope.watch(lambda now, before: seen.set())
        (tmp_path / "settings.yaml").write_text("mine: {count: 8}\n")
        async with asyncio.timeout(30):
            await seen.wait()
        assert scope.get().count == 8


@aio
async def test_our_own_writes_are_no_edits_from_outside(tmp_path: Path) -> None:
    async with at_home(tmp_path, DOCUMENT, watch=False) as ctx:
        scope = service(ctx).register("mine", Options)
        await scope.update({"count": 3})
        assert not service(ctx).is_changed
        await service(ctx).reload()
        assert scope.revision == 1


@aio
async def test_a_document_that_broke_meanwhile_is_not_written(tmp_path: Path) -> None:
    async with at_home(tmp_path, DOCUMENT, watch=False) as ctx:
        scope = service(ctx).register("mine", Options)
        (tmp_path / "settings.yaml").write_text("mine: {hush\n")
        with pytest.raises(SettingsError, match="the mapping that starts in line 1") as caught:
            await scope.update({"count": 3})
        assert caught.value.code == "SETTINGS_UNREADABLE"
        assert (tmp_path / "settings.yaml").read_text() == "mine: {hush\n"
        assert scope.get().count == 2


@aio
async def test_a_place_that_cannot_be_written_is_told_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with stored(FileStore(tmp_path / "settings.yaml")) as at:
        scope = at.service.register("mine", Options)
        (tmp_path / "settings.yaml.lock").mkdir()
        with pytest.raises(SettingsError) as caught:
            await scope.update({"count": 3})
        assert caught.value.code == "SETTINGS_UNWRITABLE"
        assert scope.get() == Options()


@aio
async def test_a_write_waits_for_another_process_and_then_gives_up_with_the_lock_s_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh.plugins.settings.document.LOCK_WAIT_S", 0.05)
    path = tmp_path / "settings.yaml"
    async with stored(FileStore(path)) as at:
        scope = at.service.register("mine", Options)
        async with UserDocument(path, lock_timeout_s=1).writing():
            with pytest.raises(SettingsError, match=r"settings\.yaml\.lock") as caught:
                await scope.update({"count": 3})
        assert caught.value.code == "SETTINGS_UNWRITABLE"
        await scope.update({"count": 4})
        assert scope.get().count == 4


def write_often(home: str, namespace: str, times: int) -> None:
    """What the other process does."""

    @aio
    async def main() -> None:
        async with stored(FileStore(Path(home) / "settings.yaml")) as at:
            scope = at.service.register(namespace, Options)
            for count in range(1, times + 1):
                await scope.update({"count": count})

    main()


def test_two_processes_that_write_different_namespaces_keep_both(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("# kept\n")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write_often, args=(str(tmp_path), name, 15)) for name in ("a", "b")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert read_yaml(tmp_path / "settings.yaml") == {"a": {"count": 15}, "b": {"count": 15}}
    assert (tmp_path / "settings.yaml").read_text().startswith("# kept\n")


@pytest.mark.parametrize("name", ["s.json", "s.yml"])
@aio
async def test_other_names_and_json_documents(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"mine": {"count": 2}, "other": [1]}\n')
    async with at_home(tmp_path, path=name) as ctx:
        await service(ctx).register("mine", Options).update({"count": 3, "tags": ["a: b"]})
    assert read_yaml(tmp_path / name) == {"mine": {"count": 3, "tags": ["a: b"]}, "other": [1]}
    if name.endswith("json"):
        import json

        assert json.loads((tmp_path / name).read_text())["mine"]["count"] == 3


@aio
async def test_another_home_and_another_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("mine: {count: 4}\n")
    (tmp_path / "empty").mkdir()
    async with at_home(tmp_path / "empty", dshHome=str(tmp_path)) as ctx:
        assert service(ctx).register("mine", Options).get().count == 4
    for name in ("settings.toml", "settings", ".yaml"):
        with pytest.raises(CompositionError, match=r"path must end in one of \.yaml, \.yml, \.json"):
            async with at_home(tmp_path, path=name):
                pass


@aio
async def test_a_section_that_nobody_reads_but_is_called_nearly_so_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from dsh.capabilities.launch import BOOT

    class Passed:
        async def ready(self) -> None:
            return

    def owner(ctx: Context) -> None:
        ctx.settings.register("permission", Options)

    async with at_home(tmp_path, "x: 1\npermissions: {}\nweb-search: {}\n") as ctx:
        await ctx.plugin(owner, inject=["settings"])
        ctx.provide(BOOT, Passed())
        async with asyncio.timeout(10):
            while not caplog.messages:
                await asyncio.sleep(0.001)
        path = tmp_path / "settings.yaml"
        assert caplog.messages == [f"{path}:2:1: nobody reads settings permissions; did you mean permission?"]
        caplog.clear()
        path.write_text("permissions: {}\npermissoin: {}\n")
        await service(ctx).reload()
        assert caplog.messages == [f"{path}:2:1: nobody reads settings permissoin; did you mean permission?"]
