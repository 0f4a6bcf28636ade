"""The credentials row as a store: what may be written, how it is written, who is told."""

import asyncio
import multiprocessing
import stat
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from dsh.capabilities import user_document
from dsh.capabilities.credentials import (
    CREDENTIAL_RECORD_UPDATED,
    CREDENTIAL_REFERENCE_UPDATED,
    CREDENTIAL_STORE,
    ApiKeyRecord,
    CredentialInfo,
    CredentialRecord,
    CredentialStore,
    GrantRecord,
    RecordUpdated,
    ReferenceUpdated,
)
from dsh.composition.text.user_file import locked, replace
from dsh.composition.text.yaml import read_yaml
from dsh.errors import CredentialError
from dsh.kernel import Context
from tests.aio import aio
from tests.plugins.test_credentials import mounted, write

DOCUMENT = """\
# keys of mine
version: 1
refs:
  FIRST: one  # do not lose
records:
  some/account: {kind: api-key, key: k, env: E}
"""


async def store_at(home: Path, **inherited: str) -> tuple[Context, CredentialStore]:
    root, _ = await mounted(home, cwd=None, **inherited)
    found = root.get(CREDENTIAL_STORE)
    assert found is not None
    return root, found


def heard(root: Context) -> list[Any]:
    events: list[Any] = []
    root.on(CREDENTIAL_REFERENCE_UPDATED, events.append)
    root.on(CREDENTIAL_RECORD_UPDATED, events.append)
    return events


@aio
async def test_a_reference_is_described_without_its_value(tmp_path: Path) -> None:
    write(tmp_path, DOCUMENT)
    (tmp_path / ".env").write_text("SECOND=two\n")
    _, store = await store_at(tmp_path, THIRD="three", FIRST="")
    assert store.describe("FIRST") == CredentialInfo(configured=True, source="file", writable=True)
    assert store.describe("SECOND") == CredentialInfo(configured=True, source="project-env", writable=True)
    assert store.describe("THIRD") == CredentialInfo(configured=True, source="env", writable=False)
    assert store.describe("NONE") == CredentialInfo(configured=False)


@aio
async def test_a_value_is_stored_beside_what_is_there_and_counts_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, DOCUMENT)
    root, store = await store_at(tmp_path)
    events = heard(root)

    await store.set("SECOND", "two: # odd 'value'")
    await store.set("FIRST", "new")

    found = store.resolve("SECOND")
    assert found is not None and (found.value, found.source) == ("two: # odd 'value'", "file")
    assert events == [ReferenceUpdated("SECOND"), ReferenceUpdated("FIRST")]
    text = path.read_text()
    assert text.startswith("# keys of mine\nversion: 1\n")
    assert "FIRST: new  # do not lose\n" in text
    assert read_yaml(path)["records"] == {"some/account": {"kind": "api-key", "key": "k", "env": "E"}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@aio
async def test_the_first_value_makes_the_document_for_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    _, store = await store_at(home)
    assert list(home.iterdir()) == []
    await store.set("FIRST", "one")
    path = home / ".credentials.yaml"
    assert read_yaml(path) == {"version": 1, "refs": {"FIRST": "one"}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@aio
async def test_a_value_taken_out_is_gone_and_the_document_stays_in_order(tmp_path: Path) -> None:
    write(tmp_path, DOCUMENT)
    root, store = await store_at(tmp_path)
    events = heard(root)
    await store.unset("FIRST")
    await store.unset("FIRST")
    assert store.resolve("FIRST") is None
    assert events == [ReferenceUpdated("FIRST")]
    await store.set("AGAIN", "x")
    assert store.describe("AGAIN").configured


@pytest.mark.parametrize("value", ["", "  ", "\n"])
@aio
async def test_a_blank_value_is_no_value(tmp_path: Path, value: str) -> None:
    _, store = await store_at(tmp_path)
    with pytest.raises(CredentialError, match="would be blank") as caught:
        await store.set("FIRST", value)
    assert caught.value.code == "INVALID_CREDENTIAL"
    assert list(tmp_path.iterdir()) == []


@aio
async def test_a_value_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, DOCUMENT)
    _, store = await store_at(tmp_path)
    with pytest.raises(CredentialError, match="half of a surrogate pair is no text"):
        await store.set("FIRST", "hush\ud800")
    assert path.read_text() == DOCUMENT


@aio
async def test_the_lock_is_waited_for_without_a_thread_and_given_up_when_the_caller_is_cancelled(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, DOCUMENT)
    _, store = await store_at(tmp_path)
    with locked(path, timeout_s=1):
        waiting = asyncio.ensure_future(store.set("FIRST", "two"))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("asyncio")] == []
    await store.set("FIRST", "three")
    assert read_yaml(path)["refs"] == {"FIRST": "three"}


@aio
async def test_a_write_whose_caller_is_cancelled_is_whole_before_the_lock_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, DOCUMENT)
    _, store = await store_at(tmp_path)
    begun, order = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def slow(*arguments: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        time.sleep(0.1)
        order.append(path.with_name(f"{path.name}.lock").exists())
        replace(*arguments)

    monkeypatch.setattr(user_document, "replace", slow)
    writing = asyncio.ensure_future(store.set("FIRST", "two"))
    await begun.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert order == [True]
    assert read_yaml(path)["refs"] == {"FIRST": "two"}
    found = store.resolve("FIRST")
    assert found is not None and found.value == "two"


@aio
async def test_what_the_environment_supplies_cannot_be_stored(tmp_path: Path) -> None:
    write(tmp_path, DOCUMENT)
    _, store = await store_at(tmp_path, FIRST="from-env")
    for attempt in (store.set("FIRST", "hush"), store.unset("FIRST")):
        with pytest.raises(CredentialError) as caught:
            await attempt
        assert caught.value.code == "CREDENTIAL_READ_ONLY"
        assert "hush" not in caught.value.message
    assert read_yaml(tmp_path / ".credentials.yaml")["refs"] == {"FIRST": "one"}


@aio
async def test_a_record_is_changed_in_one_go(tmp_path: Path) -> None:
    write(tmp_path, DOCUMENT)
    root, store = await store_at(tmp_path)
    events = heard(root)
    seen: list[CredentialRecord | None] = []

    def change(record: CredentialRecord | None) -> CredentialRecord | None:
        seen.append(record)
        return GrantRecord({"token": "t", "until": 5, "scopes": ["a"]})

    made = await store.modify_record("some/account", change)
    await store.modify_record("some/other", lambda record: ApiKeyRecord(env="NAME"))

    assert seen == [ApiKeyRecord("k", "E")]
    assert made == store.record("some/account")
    assert store.record("some/other") == ApiKeyRecord(None, "NAME")
    assert store.record_keys() == ["some/account", "some/other"]
    assert read_yaml(tmp_path / ".credentials.yaml")["records"] == {
        "some/account": {"kind": "grant", "payload": {"token": "t", "until": 5, "scopes": ["a"]}},
        "some/other": {"kind": "api-key", "env": "NAME"},
    }
    await store.modify_record("some/other", lambda record: None)
    assert store.record("some/other") is None
    assert events == [RecordUpdated("some/account"), RecordUpdated("some/other"), RecordUpdated("some/other")]


@aio
async def test_a_change_that_fails_writes_nothing_and_frees_the_lock(tmp_path: Path) -> None:
    write(tmp_path, DOCUMENT)
    _, store = await store_at(tmp_path)

    def fail(record: CredentialRecord | None) -> CredentialRecord | None:
        raise LookupError("of the caller")

    with pytest.raises(LookupError):
        await store.modify_record("some/account", fail)
    wrong = ({"kind": "x"}, "text", GrantRecord({"x": "\ud800"}), GrantRecord({"x": float("nan")}))
    for record in (ApiKeyRecord(key=""), GrantRecord(object()), *wrong):
        with pytest.raises(CredentialError, match=r"record some/account|half of a surrogate"):
            await store.modify_record("some/account", lambda _, record=record: cast(Any, record))  # type: ignore[misc]
    assert (tmp_path / ".credentials.yaml").read_text() == DOCUMENT
    await store.set("FIRST", "after")


@pytest.mark.parametrize("key", ["", "a", "a/b/c", "A/b", "a/", "sk-hush"])
@aio
async def test_a_record_s_name_is_scope_and_id(tmp_path: Path, key: str) -> None:
    _, store = await store_at(tmp_path)
    with pytest.raises(CredentialError, match="named scope/id") as caught:
        store.record(key)
    assert "hush" not in caught.value.message


def test_records_do_not_show_what_they_hold() -> None:
    assert "hush" not in f"{ApiKeyRecord('hush')!r} {GrantRecord('hush')!r}"


@aio
async def test_a_document_that_is_not_in_order_is_not_written(tmp_path: Path) -> None:
    path = write(tmp_path, DOCUMENT)
    _, store = await store_at(tmp_path)
    path.write_text("version: 1\nrefs: {FIRST: 5}\n")
    with pytest.raises(CredentialError, match="FIRST must be a string"):
        await store.set("SECOND", "x")
    path.write_text(DOCUMENT)
    path.chmod(0o644)
    with pytest.raises(CredentialError, match="lets others at the keys"):
        await store.set("SECOND", "x")
    assert path.read_text() == DOCUMENT


@aio
async def test_what_others_changed_is_told_with_the_next_look_up(tmp_path: Path) -> None:
    path = write(tmp_path, DOCUMENT)
    root, store = await store_at(tmp_path)
    events = heard(root)
    path.write_text("version: 1\nrefs: {NEW: x}\n")
    assert store.resolve("FIRST") is None
    assert events == [ReferenceUpdated("FIRST"), ReferenceUpdated("NEW"), RecordUpdated("some/account")]


@aio
async def test_a_document_that_others_may_read_now_is_not_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, DOCUMENT)
    _, store = await store_at(tmp_path)
    write(tmp_path, DOCUMENT.replace("one", "two"), 0o640)
    found = store.resolve("FIRST")
    assert found is not None and found.value == "one"
    [told] = caplog.messages
    assert (
        told
        == f"{path}: mode 0640 lets others at the keys (chmod 600 {path}); the keys read before still count"
    )
    path.chmod(0o600)
    found = store.resolve("FIRST")
    assert found is not None and found.value == "two"


@aio
async def test_a_mistake_in_a_changed_document_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, DOCUMENT)
    _, store = await store_at(tmp_path)
    path.write_text("version: 2\n")
    assert [store.describe("FIRST").configured for _ in range(3)] == [True] * 3
    assert len(caplog.messages) == 1
    hint = "(names and keys stand under refs:, below version: 1)"
    assert f"version must be 1 {hint}; the keys read before still count" in caplog.messages[0]


# -- the old form ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "# mine\nFIRST: one # do not lose\n\nSECOND: 'two'\n",
        "FIRST: one\nSECOND: two",
        "{FIRST: one, SECOND: two}\n",
        "FIRST: |-\n  one\nSECOND: >-\n  two\n",
        "\ufeffFIRST: one\r\nSECOND: two\r\n",
    ],
)
@aio
async def test_the_flat_form_is_renewed_once_with_its_lines_as_they_are(tmp_path: Path, text: str) -> None:
    path = tmp_path / ".credentials.yaml"
    path.write_bytes(text.encode())
    path.chmod(0o600)
    _, store = await store_at(tmp_path)
    assert read_yaml(path) == {"version": 1, "refs": {"FIRST": "one", "SECOND": "two"}}
    assert all(line.strip() in path.read_text() for line in text.removeprefix("\ufeff").splitlines())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = path.stat().st_ino
    assert store.describe("SECOND").source == "file"
    await store_at(tmp_path)
    assert path.stat().st_ino == first


@aio
async def test_a_flat_form_that_cannot_be_renewed_counts_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, "--- {FIRST: hush}\n")
    _, store = await store_at(tmp_path)
    found = store.resolve("FIRST")
    assert found is not None and found.value == "hush"
    assert path.read_text() == "--- {FIRST: hush}\n"
    assert "cannot be renewed" in caplog.text
    assert "hush" not in caplog.text


# -- several processes -----------------------------------------------------------------------------


def count_up(home: str, times: int) -> None:
    """What each process does: read a number, write the next one."""

    @aio
    async def main() -> None:
        _, store = await store_at(Path(home))

        def next_one(record: CredentialRecord | None) -> CredentialRecord:
            return GrantRecord(record.payload + 1 if isinstance(record, GrantRecord) else 1)

        for _ in range(times):
            await store.modify_record("count/up", next_one)

    main()


def test_processes_that_change_one_record_lose_no_change(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=count_up, args=(str(tmp_path), 8)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert read_yaml(tmp_path / ".credentials.yaml")["records"]["count/up"]["payload"] == 24
    assert not list(tmp_path.glob("*.tmp"))
