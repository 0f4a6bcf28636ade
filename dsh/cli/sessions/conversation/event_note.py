"""Events that are no messages, in words: one line each, and what is worth more lines below it."""

from collections.abc import Callable

from dsh.cli.sessions.conversation.foreign import at, integer_at, json_text, object_at, objects_at, text_at
from dsh.cli.sessions.conversation.item import Note
from dsh.cli.sessions.conversation.wording import seconds
from dsh.session.event import SessionEvent
from dsh.session.value import JsonObject

Told = str | tuple[str, str, bool] | None
"""A text, or text, detail and whether it is a failure; None where there is nothing to tell a person."""


def note_of(event: SessionEvent, subject: str = "") -> Note | None:
    """What there is to say about an event.

    Args:
        subject: the tool that a decision is about, or the command that is over; the event does not name it.
    """
    data = object_at(event.data)
    told: Told
    if event.type in _SILENT:
        return None
    if event.type == "approval/decided":
        told = _decided(data, subject)
    elif event.type == "command/done":
        told = _command_done(data, subject)
    elif (tell := _TOLD.get(event.type)) is not None:
        told = tell(data)
    else:
        told = event.type, json_text(event.data), False
    if told is None:
        return None
    return Note(event.time, event.type, *((told,) if isinstance(told, str) else told))


def retry_note(event: SessionEvent) -> Note:
    """A failed attempt that is tried again."""
    data = event.data
    failure = object_at(data, "failure")
    most = integer_at(data, "maxRetries")
    retry = f"retry {integer_at(data, 'retry') or 0}" + (f" of {most}" if most is not None else "")
    delay = integer_at(data, "delayMs")
    after = f" after {seconds(delay)}" if delay is not None else ""
    return Note(event.time, event.type, f"attempt failed: {failed(failure)}; {retry}{after}", "", True)


def failed(failure: JsonObject) -> str:
    """A failure in one line: message, code and HTTP status."""
    status = integer_at(failure, "status")
    marks = ", ".join(filter(None, (text_at(failure, "code"), "" if status is None else f"HTTP {status}")))
    message = text_at(failure, "message") or "no reason is recorded"
    return f"{message} ({marks})" if marks else message


def ending(reason: JsonObject) -> tuple[str, bool]:
    """Why a turn ended, in words, and whether that is a failure."""
    kind = text_at(reason, "kind")
    match kind:
        case "completed":
            return "completed", False
        case "aborted":
            by = text_at(reason, "reason", "kind")
            detail = text_at(reason, "reason", "reason")
            if by == "hook" and detail in _limits:
                return f"stopped at the limit of {_limits[detail]}", True
            return f"aborted{_by.get(by, f' ({by})' if by else '')}" + (f": {detail}" if detail else ""), True
        case "error":
            return f"failed: {failed(object_at(reason, 'error'))}", True
        case "blocked":
            return "blocked before its first step", True
        case "max-tokens":
            return "stopped: a reply reached its token limit", True
        case "interrupted":
            return "interrupted: the session ended before the turn did", True
    return kind or "ended", False


_by = {
    "user": " by the user",
    "parent": " by the parent session",
    "hook": " by a hook",
    "disposed": ": the agent was shut down",
    "legacy": "",
}
_limits = {
    "limit:steps": "steps",
    "limit:tokens": "tokens",
    "limit:timeout": "time",
    "limit:repeat": "equal calls in a row",
}
_SILENT = frozenset(
    {
        "agent/inbox/spliced",
        "request/context",
        "session/end-seed",
        "session/title-llm-request",
        "compaction/start",
        "compaction/prune",
        "hook/invoked",
        "tool/code-dispatch-start",
        "team/message/delivered",
        "composition/mounted",
        "fs/observation",
        "request/digest",
        "request/usage",
    }
)


def _plain(label: str, *path: str) -> Callable[[JsonObject], Told]:
    return lambda data: f"{label}: {text_at(data, *path)}"


def _todos(data: JsonObject) -> Told:
    marks = {"completed": "[x]", "in_progress": "[>]"}
    todos = [(text_at(todo, "status"), text_at(todo, "content")) for todo in objects_at(data, "todos")]
    done = sum(status == "completed" for status, _ in todos)
    return (
        f"todos: {done} of {len(todos)} done",
        "\n".join(f"{marks.get(s, '[ ]')} {t}" for s, t in todos),
        False,
    )


def _asked(data: JsonObject) -> Told:
    reason = text_at(data, "reason")
    return f"approval asked for {text_at(data, 'toolName')}" + (f": {reason}" if reason else "")


def _decided(data: JsonObject, tool: str) -> Told:
    outcome = text_at(data, "outcome")
    return f"approval{f' for {tool}' if tool else ''}: {outcome}", "", outcome != "allowed-once"


def _header(data: JsonObject) -> Told:
    route = f"{text_at(data, 'header', 'config', 'provider')}/{text_at(data, 'header', 'config', 'model')}"
    match text_at(data, "reason"):
        case "resume":
            return f"resumed with {route}"
        case "change":
            return f"the request changes: {route}"
    return None


def _command(data: JsonObject) -> Told:
    return f"/{text_at(data, 'name')}{_spaced(text_at(data, 'args'))}"


def _spaced(arguments: str) -> str:
    return arguments if not arguments or arguments[0].isspace() else f" {arguments}"


def _command_done(data: JsonObject, command: str) -> Told:
    is_error = text_at(data, "kind") == "error"
    text = text_at(data, "text")
    if not text and not is_error:
        return None
    return f"{command or 'command'} {'failed' if is_error else 'done'}", text, is_error


def _summary(data: JsonObject) -> Told:
    shadowed = at(data, "shadowedSeqs")
    count = len(shadowed) if isinstance(shadowed, list | tuple) else 0
    tokens = integer_at(data, "shadowedTokenCount")
    size = f", about {tokens:,} tokens" if tokens is not None else ""
    messages = "1 message" if count == 1 else f"{count} messages"
    return f"compaction: a summary takes the place of {messages}{size}"


def _compacted(data: JsonObject) -> Told:
    error = at(data, "error")
    if error is None:
        return None
    return f"compaction failed: {error if type(error) is str else failed(object_at(data, 'error'))}", "", True


def _goal(data: JsonObject) -> Told:
    objective = text_at(data, "goal", "objective")
    phase = text_at(data, "goal", "phase")
    return f"goal {text_at(data, 'operation')}{f' ({phase})' if phase else ''}", objective, phase == "blocked"


def _plan(data: JsonObject) -> Told:
    return f"plan mode {'on' if at(data, 'active') is True else 'off'}"


def _title(data: JsonObject) -> Told:
    source = text_at(data, "source", "kind")
    by = {"user": "by the user", "provider": "by a model"}.get(source)
    return None if by is None else f"title {by}: {text_at(data, 'title')}"


def _subagent(data: JsonObject) -> Told:
    words = (text_at(data, "mode"), text_at(data, "label"), text_at(data, "persona"))
    return "subagent: " + " ".join(filter(None, words))


def _agent_start(data: JsonObject) -> Told:
    return f"workflow agent {text_at(data, 'label')} begins: session {text_at(data, 'childId')}"


def _agent_end(data: JsonObject) -> Told:
    outcome = text_at(data, "outcome")
    return f"workflow agent {integer_at(data, 'seq') or 0}: {outcome}", "", outcome != "completed"


def _workflow_end(data: JsonObject) -> Told:
    reason = text_at(data, "stopReason")
    return f"workflow: {reason}", "", reason == "error"


def _from_code(data: JsonObject) -> Told:
    is_error = at(data, "isError") is True
    state = "failed" if is_error else "done"
    return f"from code: {text_at(data, 'name')} {state}", json_text(at(data, "arguments")), is_error


def _hook(data: JsonObject) -> Told:
    decision = text_at(data, "decision")
    code = integer_at(data, "exitCode")
    took = integer_at(data, "durationMs")
    marks = ["" if code is None else f"exit code {code}", "" if took is None else seconds(took)]
    shown = ", ".join(filter(None, (decision, *marks)))
    failing = decision not in ("pass", "allow", "approve", "")
    return f"hook {text_at(data, 'point')}: {shown}", text_at(data, "stderrSummary"), failing


def _schedule(data: JsonObject) -> Told:
    what = object_at(data, "schedule")
    words = (text_at(data, "id") or text_at(what, "id"), text_at(what, "kind"), text_at(what, "scheduledAt"))
    return (
        f"schedule {text_at(data, 'operation')}: {' '.join(filter(None, words))}",
        text_at(what, "prompt"),
        False,
    )


def _member(data: JsonObject) -> Told:
    phase = text_at(data, "member", "phase")
    return f"team member {text_at(data, 'member', 'name')}: {phase}", "", phase == "failed"


def _task(data: JsonObject) -> Told:
    return f"team task {text_at(data, 'task', 'subject')}: {text_at(data, 'task', 'status')}"


def _team_message(data: JsonObject) -> Told:
    content = at(data, "message", "content")
    return f"team message from {text_at(data, 'message', 'senderName')}", _words(content), False


def _words(content: object) -> str:
    if type(content) is str:
        return content
    return "\n".join(text_at(block, "text") for block in objects_at(content))


def _dropped(data: JsonObject) -> Told:
    return f"dropped at the end of the run: {text_at(data, 'kind')} {text_at(data, 'label')}", "", True


_TOLD: dict[str, Callable[[JsonObject], Told]] = {
    "agent-preset/selected": _plain("agent preset", "agentPreset"),
    "approval/asked": _asked,
    "approval/policy": _plain("approval policy", "policy"),
    "command/run": _command,
    "compaction/end": _compacted,
    "compaction/summary": _summary,
    "feedback/record": lambda data: ("feedback", text_at(data, "text"), False),
    "goal/change": _goal,
    "hook/result": _hook,
    "permission/preset": _plain("permission preset", "preset"),
    "plan/mode": _plan,
    "request/header": _header,
    "run/dropped": _dropped,
    "sandbox/mode": _plain("sandbox", "mode"),
    "schedule/change": _schedule,
    "session/title": _title,
    "subagent/descriptor": _subagent,
    "team/member": _member,
    "team/message/queued": _team_message,
    "team/task": _task,
    "todo/write": _todos,
    "tool-workflow/agent-end": _agent_end,
    "tool-workflow/agent-start": _agent_start,
    "tool-workflow/run-end": _workflow_end,
    "tool-workflow/run-start": _plain("workflow", "name"),
    "tool/code-dispatch": _from_code,
    "web/deepseek-search-llm-request": _plain("web search through", "endpoint"),
}
