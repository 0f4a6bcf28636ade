"""`dsh replay` as a process: what was recorded replays, what was changed is found, and nothing is written."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.workspace import Finished, Workspace, finish, log_rows, log_text
from tests.corpus import CORPUS, needs_corpus
from tests.e2e.model import Model
from tests.e2e.reply import bash, failure, text
from tests.e2e.scenario import load, play
from tests.e2e.test_compaction import PRINT, SMALL
from tests.e2e.test_going_on import QUEUE
from tests.e2e.test_kill import AGAIN, RESUMER
from tests.e2e.test_scenarios import LATER
from tests.e2e.test_storage_sqlite import use
from tests.process import wait_until
from tests.replaying import Rows, replayed, rewritten, without_digests

Answering = Callable[..., Model]
SCENARIOS = sorted(path for path in (CORPUS / "scenarios").glob("*.json") if path.stem not in LATER)
DIVERGED = 1
QUICK = """
- id: llm-deepseek
  merge: {retryPolicy: {backoff: {initialDelayMs: 1, maxDelayMs: 1}}}
"""


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file with its bytes, to see that nothing was written."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def replay(space: Workspace, *words: str, env: dict[str, str | None] | None = None) -> Finished:
    """Replay without a key and with a model server that nobody may ask."""
    nowhere = {"DEEPSEEK_API_KEY": None, "DEEPSEEK_BASE_URL": "http://127.0.0.1:9"}
    return space.run("replay", *words, env={**nowhere, **(env or {})})


def report(space: Workspace, *words: str) -> dict[str, Any]:
    """What `--json` tells."""
    found: dict[str, Any] = json.loads(replay(space, *words, "--json").stdout)
    return found


def recorded(space: Workspace, answering: Answering, *replies: Any) -> Path:
    """The log of one task."""
    answering(*replies)
    space.run("run", "DO THE TASK")
    [log] = space.logs()
    return log


@needs_corpus
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_what_a_scenario_recorded_replays(path: Path, tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    played = play(dict(load(path)), space)
    before = files_below(tmp_path)

    for log in played.logs:
        done = replayed(log)

        assert done.code == 0, done.told
        assert re.fullmatch(r"session-\S+ replays as recorded: \d+ events, 1 turn, .*\n", done.told)

    assert files_below(tmp_path) == before


@needs_corpus
@pytest.mark.parametrize("name", ["write-read-edit", "bash-big", "parallel-reads", "sigint", "glob-grep"])
def test_live_tools_do_the_same_in_another_directory(name: str, tmp_path: Path) -> None:
    scenario = dict(load(CORPUS / "scenarios" / f"{name}.json"))
    space, other = Workspace(tmp_path / "first"), Workspace(tmp_path / "other")
    played = play(scenario, space)
    for file, content in scenario["options"].get("files", {}).items():
        other.write(file, content)
    [log] = played.logs
    recorded_in = files_below(space.work)

    done = replayed(log, directory=other.work)

    assert done.code == 0, done.told
    assert files_below(other.work) == recorded_in == files_below(space.work)


def test_a_session_of_the_demo_replays_by_last_by_id_and_by_prefix(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    space.run("--profile", "demo", "Run: echo hello")
    [log] = space.logs()
    session = log.parent.name

    found = [
        replay(space, name) for name in ("last", session, session[:20], session.removeprefix("session-"))
    ]

    assert {done.code for done in found} == {0}
    assert len({done.stdout for done in found}) == 1
    assert all(done.stderr == "" for done in found)


def test_recorded_tools_touch_nothing(tmp_path: Path, answering: Answering, space: Workspace) -> None:
    log = recorded(space, answering, bash("touch made && pwd"), text("done"))
    (space.work / "made").unlink()
    before = files_below(space.root)

    done = replay(space, str(log))

    assert done.code == 0
    assert files_below(space.root) == before


def test_a_replay_needs_neither_directory_nor_profile_of_then(space: Workspace, answering: Answering) -> None:
    log = recorded(space, answering, bash("pwd"), text("done"))
    elsewhere = Workspace(space.root / "elsewhere")
    text_of_log = log_text(log).replace(str(space.work).encode(), b"/gone/work").decode()
    path = rewritten(elsewhere.write("log.jsonl", text_of_log), without_digests)
    patch = elsewhere.write("fewer.yml", "- id: tool-bash\n  remove: true\n- id: tool-fs\n  remove: true\n")

    done = replayed(path, patch)

    assert done.code == 0, done.told
    assert "note: the tools of this composition are not described as the recorded ones" in done.told


def test_retries_are_made_again_without_their_waits(space: Workspace, answering: Answering) -> None:
    slow = {**failure(429, "slow down"), "headers": {"retry-after": "0"}}
    log = recorded(space, answering, failure(500, "oops"), slow, text("done"))

    done = replayed(log)

    assert done.divergence is None
    assert done.report is not None
    assert done.report.compared.requests == 3


@pytest.mark.parametrize("slow", [0, 1, 2, 3])
def test_a_retry_that_the_provider_asked_for_counts_with_the_others(
    slow: int, space: Workspace, answering: Answering
) -> None:
    faults = [failure(503, "busy") for _ in range(4)]
    faults[slow]["headers"] = {"retry-after": "0"}
    space.write("q.yml", QUICK)
    answering(*faults, text("done"))
    space.run("run", "--patch", "q.yml", "DO THE TASK")
    [log] = space.logs()

    done = replayed(log)

    assert done.divergence is None, done.told


def test_retries_under_a_policy_that_was_changed_between_them_replay(
    space: Workspace, answering: Answering
) -> None:
    space.write("q.yml", QUICK)
    answering(*[failure(503, "busy") for _ in range(5)], text("done"))
    space.run("run", "--patch", "q.yml", "DO THE TASK")
    [log] = space.logs()
    counts = iter([1, 2, 1, 3, 2])

    def change(rows: Rows) -> None:
        """As if the settings had been changed, changed back, and changed again."""
        for row in rows:
            if row["type"] == "llm/retry":
                row["data"]["retry"] = count = next(counts)
                if rows.index(row) in others:
                    row["data"]["policyKey"] = "another"
            elif row["type"] == "llm/retry-started":
                row["data"]["retry"] = count

    places = [at for at, row in enumerate(log_rows(log)) if row["type"] == "llm/retry"]
    others = {places[2], places[4]}

    done = replayed(rewritten(log, change))

    assert done.divergence is None, done.told


REFUSED = (
    "- id: agent-default-model\n  config: {provider: lab, model: other}\n"
    "- id: llm-openai\n  merge: {providers: {lab: {baseURL: 'http://127.0.0.1:9/v1', keyless: true, "
    "strictModels: true, models: [{id: known}]}}}\n"
)


def test_a_request_that_the_adapter_refused_is_refused_again(space: Workspace) -> None:
    """The log then has no request, no reply and not even the name of the route."""
    space.write("refused.yml", REFUSED)
    done = space.run("run", "--patch", "refused.yml", "DO THE TASK")
    assert (done.code, "UNKNOWN_MODEL" in done.stderr) == (1, True)
    [log] = space.logs()

    again = replayed(log)

    assert (again.code, again.divergence) == (0, None), again.told


def test_a_live_tool_that_says_something_else_is_a_difference(space: Workspace, answering: Answering) -> None:
    log = recorded(space, answering, bash("cat note"), text("done"))
    space.write("note", "now it is there\n")

    done = replay(space, str(log), "--tools", "live", "--in", str(space.work))

    assert done.code == DIVERGED
    assert "tool/result differs" in done.stdout
    assert "now it is there" in done.stdout


def test_a_fork_without_a_turn_of_its_own_names_the_session_it_came_from(space: Workspace) -> None:
    space.run("--profile", "demo", "Run: echo hello")
    forked = space.run("sessions", "fork", "last").stdout.strip()

    done = replay(space, forked)

    assert done.code == 1
    assert done.stderr.startswith("dsh: NOTHING_TO_REPLAY: ")
    assert "dsh replay session-" in done.stderr


COMMANDER = RESUMER.replace(
    'agents[0].followup(user_message("go on"))',
    'await ctx.use(COMMANDS).execute(agents[0], "/compact")\n    agents[0].followup(user_message("go on"))',
).replace("inject = [", "from dsh.capabilities.commands import COMMANDS\ninject = [COMMANDS, ")
"""The same, with a command before the task."""


def resumed(space: Workspace, session: str, row: str = RESUMER) -> None:
    """Go on with a stored session in another process, by one more task."""
    folder = space.home / "profiles" / "again"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "profile.yml").write_text("bundles: [base]\n")
    (folder / "resumer.py").write_text(row)
    (folder / "dsh.patch.yml").write_text(AGAIN.format(id=session))
    done = space.run("--profile", "again")
    assert done.code == 0, done.stderr


def test_what_a_fork_did_since_replays(space: Workspace, answering: Answering) -> None:
    recorded(space, answering, bash("echo one"), text("done"))
    forked = space.run("sessions", "fork", "last").stdout.strip()
    resumed(space, forked)

    found = report(space, forked)

    assert found["divergence"] is None
    assert found["compared"]["turns"] == 1


def test_a_session_of_two_processes_replays_process_by_process(
    space: Workspace, answering: Answering
) -> None:
    log = recorded(space, answering, bash("echo one"), text("done"))
    resumed(space, log.parent.name)

    found = report(space, str(log))

    assert [row["data"]["turn"] for row in log_rows(log) if row["type"] == "turn/start"] == [1, 2]
    assert found["divergence"] is None
    assert found["compared"]["turns"] == 2


def test_a_command_is_run_again(space: Workspace, answering: Answering) -> None:
    log = recorded(space, answering, bash("seq 9000"), text("done"))
    answering(text("what was done so far"), text("more"))
    resumed(space, log.parent.name, COMMANDER)
    kinds = [row["type"] for row in log_rows(log)]

    done = replayed(log)

    assert kinds.index("command/run") < kinds.index("compaction/start") < kinds.index("command/done")
    assert done.code == 0, done.told


def test_a_summarised_history_is_summarised_again(space: Workspace, answering: Answering) -> None:
    small = space.write("small.yml", SMALL.replace("WINDOW", "20000"))
    answering(*[bash(PRINT.format(words=2000, number=number)) for number in range(6)], text("done"))
    space.run("run", "--patch", str(small), "DO THE TASK")
    [log] = space.logs()
    kinds = [row["type"] for row in log_rows(log) if row["type"].startswith("compaction/")]

    done = replayed(log, small)

    assert kinds
    assert done.code == 0, done.told


def test_input_in_the_middle_of_a_turn_comes_where_it_came(space: Workspace, answering: Answering) -> None:
    space.write("queue.py", QUEUE)
    patch = space.write("queue.yml", "- insert:\n    - {id: queue, name: ./queue.py}\n")
    answering(bash("echo one"), text("done"), text("more"))
    space.run("run", "--patch", str(patch), "DO THE TASK")
    [log] = space.logs()

    done = replayed(log)

    assert done.divergence is None
    assert done.report is not None
    assert done.report.compared.turns == 2


NAPS = """
import asyncio
from dsh.session.message import user_message
from dsh.tools.registry import TOOLS
from dsh.tools.typed import TEXT_OUTPUT, typed_tool

inject = [TOOLS]

def tool(name, execute, **more):
    return typed_tool(
        name=name, description="A test.", parameters={}, output=TEXT_OUTPUT, execute=execute, **more
    )

def apply(ctx):
    async def first(args, execution):
        await asyncio.sleep(0.3)
        return "slept"

    async def other(args, execution):
        return "awake"

    async def tell(args, execution):
        execution.defer_context(user_message("told beside it"))
        return "told"

    ctx.use(TOOLS).register(tool("first", first, concurrency_safe=True))
    ctx.use(TOOLS).register(tool("other", other, concurrency_safe=True))
    ctx.use(TOOLS).register(tool("tell", tell))
"""


def test_tools_that_overtook_an_earlier_one_overtake_it_again(space: Workspace, answering: Answering) -> None:
    """More calls than may overlap: some were started because later ones than the first were over."""
    space.write("naps.py", NAPS)
    patch = space.write("naps.yml", "- insert:\n    - {id: naps, name: ./naps.py}\n")
    names = ["first", *["other"] * 15, "tell", "tell", "other"]
    calls = [{"id": f"c{at}", "name": name, "args": ["{}"]} for at, name in enumerate(names)]
    answering({"tools": calls}, text("done"))
    assert space.run("run", "--patch", str(patch), "DO THE TASK").code == 0
    [log] = space.logs()
    kinds = [row["type"] for row in log_rows(log) if row["type"] in ("tool/call", "tool/result")]

    done = replayed(log)

    assert kinds[:16] == ["tool/call"] * 16
    assert done.code == 0, done.told


def test_a_log_whose_first_turn_has_no_input_is_refused_although_a_later_one_has(
    space: Workspace, answering: Answering
) -> None:
    log = recorded(space, answering, text("done"))
    resumed(space, log.parent.name)

    def change(rows: Rows) -> None:
        for row in rows[: next(at for at, row in enumerate(rows) if row["type"] == "turn/end")]:
            if row["type"] == "agent/inbox/spliced":
                row.update(type="acme/nothing", ignorable=True)

    done = replayed(rewritten(log, change))

    assert done.told.startswith("INPUTS_NOT_RECORDED: ")


def test_a_signal_that_dropped_what_waited_drops_it_again(space: Workspace, answering: Answering) -> None:
    space.write("queue.py", QUEUE)
    patch = space.write("queue.yml", "- insert:\n    - {id: queue, name: ./queue.py}\n")
    answering(bash("touch started; sleep 60"), text("never"))
    process = space.start("run", "--patch", str(patch), "DO THE TASK")
    wait_until(lambda: (space.work / "started").exists(), process)
    process.send_signal(signal.SIGTERM)
    assert finish(process).code == 143
    [log] = space.logs()

    done = replayed(log)

    assert any(row.get("data", {}).get("outcome") == "canceled" for row in log_rows(log))
    assert done.code == 0, done.told


def test_a_session_in_a_database_replays(space: Workspace, answering: Answering) -> None:
    use(space)
    answering(bash("echo one"), text("done"))
    space.run("run", "DO THE TASK")
    before = files_below(space.root)

    done = replay(space, "last")

    assert done.code == 0, done.stdout + done.stderr
    left = {name for name in files_below(space.root) if not name.endswith(("-wal", "-shm"))}
    assert left == before.keys()


def test_a_run_at_its_limit_replays_without_the_limit(space: Workspace, answering: Answering) -> None:
    patch = space.write("limit.yml", "- id: headless-runner\n  merge: {maxSteps: 2}\n")
    answering(bash("echo again"))
    assert space.run("run", "--patch", str(patch), "DO THE TASK").code == 5
    [log] = space.logs()

    assert replayed(log).divergence is None


def test_an_app_of_the_profile_is_refused(space: Workspace, answering: Answering) -> None:
    recorded(space, answering, text("done"))
    space.write("resumer.py", RESUMER)
    patch = space.write("app.yml", "- insert:\n    - {id: resumer, name: ./resumer.py}\n")

    done = replay(space, "last", "--patch", str(patch))

    assert (done.code, done.stdout) == (3, "")
    assert "resumer" in done.stderr
    assert "is an app of its own" in done.stderr
    assert "remove: true" in done.stderr


def test_an_interrupted_replay_ends_with_the_code_of_the_signal(
    space: Workspace, answering: Answering
) -> None:
    log = recorded(space, answering, bash("echo $$ > pid; test -e slow && sleep 60"), text("done"))
    space.write("slow", "")
    (space.work / "pid").unlink(missing_ok=True)
    process = space.start("replay", str(log), "--tools", "live", "--in", str(space.work))
    wait_until(lambda: (space.work / "pid").exists(), process)
    process.send_signal(signal.SIGINT)

    done = finish(process)

    assert (done.code, done.stdout) == (130, "")


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["session-none"], 1, "dsh: SESSION_NOT_FOUND: no session 'session-none'"),
        (["./none.jsonl"], 1, "dsh: "),
        (["last", "--tools", "fake"], 2, "error: --tools is recorded or live, found 'fake'"),
        (["last", "--tools", "live"], 2, "error: --tools live needs --in DIR"),
        (["last", "--in", "."], 2, "error: --in is for live tools"),
        (["last", "--tools", "live", "--in", "none"], 2, "error: --in none: there is no such directory"),
        (["last", "--tools", "live", "--in", "file"], 2, "error: --in file: that is no directory"),
        (["last", "--profile", "none"], 3, "dsh: profile 'none' does not exist"),
        ([], 2, "error: "),
    ],
)
def test_what_cannot_be_replayed_is_told(tmp_path: Path, words: list[str], code: int, line: str) -> None:
    space = Workspace(tmp_path)
    space.write("file", "")
    before = files_below(tmp_path)

    done = replay(space, *words)

    assert (done.code, done.stdout) == (code, "")
    assert done.stderr.startswith(line), done.stderr
    assert "Traceback" not in done.stderr
    assert files_below(tmp_path) == before


@needs_corpus
@pytest.mark.parametrize(
    ("log", "code"),
    [
        ("apps-web-fresh-round-trip-session.jsonl", "INPUTS_NOT_RECORDED"),
        ("acp-agent-handshake-session.jsonl", "NOTHING_TO_REPLAY"),
    ],
)
def test_a_log_without_inputs_is_refused_by_name(log: str, code: str) -> None:
    done = replayed(CORPUS / "fixtures" / log)

    assert (done.code, done.report) == (1, None)
    assert done.told.startswith(f"{code}: ")


@needs_corpus
@pytest.mark.parametrize(
    "log",
    [
        "fixtures/acp-agent-cancel-session.jsonl",
        "fixtures/acp-agent-escalation-rejected-session.jsonl",
        "fixtures/acp-agent-error-finish-session.jsonl",
        "runs/kill-in-tool.jsonl",
        "runs/sigint.jsonl",
        "runs/cut-then-ok.jsonl",
    ],
)
def test_sessions_of_the_original_replay(log: str) -> None:
    done = replayed(CORPUS / log)

    assert done.code == 0, done.told
