"""The shipped rows: ids, names and literal configs are facts that users' patches rely on."""

from pathlib import Path
from typing import Any

import pytest

from dsh.composition.compose import compose
from dsh.composition.expression.evaluation import Scope, config_data
from dsh.composition.profile import shipped_names
from dsh.composition.row import Row
from dsh.composition.value import Expr
from dsh.kernel import Context

HOME = Path("/nonexistent")
MODE = "get(env, 'DSH_PERMISSION_MODE', 'workspace-write')"

BASE: dict[str, dict[str, Any]] = {
    "timer": {},
    "llm": {},
    "llm-deepseek": {},
    "model-catalogue": {},
    "llm-openai": {
        "config": {
            "providers": {
                "openai-compatible": {"apiKeyEnv": "OPENAI_API_KEY", "baseURLEnv": "OPENAI_BASE_URL"}
            }
        }
    },
    "llm-anthropic": {
        "config": {
            "providers": {"anthropic": {"apiKeyEnv": "ANTHROPIC_API_KEY", "baseURLEnv": "ANTHROPIC_BASE_URL"}}
        }
    },
    "llm-retry": {},
    "credentials": {},
    "settings": {},
    "session": {},
    "session-title": {"config": {"fallbackMaxWords": 5, "fallbackMaxBytes": 40, "maxTitleBytes": 80}},
    "session-title-llm": {
        "disabled": True,
        "config": {
            "targetWords": 5, "targetCjkCharacters": 10, "maxInputBytes": 4096, "maxOutputTokens": 64,
            "timeoutMs": 60000,
        },
    },
    "session-persistence-jsonl": {"config": {"root": "home('sessions')"}},
    "session-checkpoint-policy": {},
    "session-projection": {},
    "session-stats": {},
    "session-projection-cache": {"config": {"writeEveryEvents": 200, "writeIntervalMs": 5000}},
    "session-composition": {},
    "session-query-sqlite": {"config": {"path": ":memory:", "openAt": "never"}},
    "session-telemetry-otel": {
        "config": {
            "mode": "get(env, 'DSH_TELEMETRY_MODE') or 'DISABLED'",
            "shutdownTimeoutMillis": 3000,
            "exporter": {
                "url": "get(env, 'DSH_TELEMETRY_OTLP_URL')", "compression": "gzip", "timeoutMillis": 1000,
            },
            "processor": {
                "scheduledDelayMillis": 10000, "maxQueueSize": 2048, "maxExportBatchSize": 2048,
                "exportTimeoutMillis": 1500,
            },
        }
    },
    "agent": {},
    "agent-default-model": {"config": {"provider": "deepseek-official", "model": "deepseek-v4-flash"}},
    "agent-loop": {"config": {"agents": []}},
    "system-prompt": {"config": {"persona": ""}},
    "agent-instructions": {"config": {"maxBytes": 65536}},
    "token-meter": {},
    "compaction-basic": {},
    "command-compact": {},
    "tool-result-pruner": {"config": {"thresholdChars": 8192, "headChars": 4096, "tailChars": 1024}},
    "sandbox-policy": {"config": {"mode": MODE, "workspaceRoot": "cwd", "protectedPaths": "[home()]"}},
    "approval": {"config": {"policy": f"'never' if {MODE} == 'danger-full-access' else 'ask'"}},
    "permission": {
        "config": {
            "presets": {
                "read-only": {"sandbox": "read-only", "approval": "ask"},
                "workspace-write": {"sandbox": "workspace-write", "approval": "ask"},
                "danger-full-access": {"sandbox": "danger-full-access", "approval": "never"},
            }
        }
    },
    "commands": {},
    "user-questions": {},
    "subprocess": {},
    "sandbox": {},
    "shell-env": {},
    "bash-sandbox": {"disabled": "platform == 'win32'", "config": {"timeoutMs": 60000}},
    "jobs": {},
    "fs-sandbox": {},
    "fs-observation-policy": {},
    "tools": {},
    "timeout-policy": {},
    "spill-local": {},
    "spill-policy": {"config": {"maxInlineBytes": 50000}},
    "repeat-tool-reminder": {
        "config": {"thresholds": [3, 5, 8], "argumentsPreviewChars": 500, "blockAt": 20, "endTurnAt": 30}
    },
    "tool-bash": {"disabled": "platform == 'win32'"},
    "tool-jobs": {},
    "tool-fs": {},
    "tool-fs-search": {"config": {"sampleOverCapGlobResults": False}},
    "tool-str-replace-editor": {"config": {"maxOutputChars": 16000}},
    "tool-todo": {"config": {"allowParallelInProgress": True}},
    "skill": {},
    "skill-filesystem": {},
    "tool-skill": {},
    "web": {"config": {"searchProvider": "get(env, 'DSH_WEB_SEARCH_PROVIDER') or 'deepseek-official'"}},
    "web-search-deepseek": {"config": {"apiKeyEnv": "DEEPSEEK_API_KEY"}},
    "tool-web": {"config": {"fetch": False, "searchTimeoutMs": 60000}},
}  # fmt: skip


def rows(profile: str) -> dict[str, Row]:
    made = compose(profile, [], HOME, environ={})
    assert made.warnings == []
    return {str(row.id): row for row in made.rows}


def texts(value: Any) -> Any:
    """The value with the text of each expression in its place."""
    if isinstance(value, Expr):
        return value.text
    if isinstance(value, dict):
        return {key: texts(item) for key, item in value.items()}
    return [texts(item) for item in value] if isinstance(value, list) else value


def base_rows(tmp_path: Path) -> dict[str, Row]:
    folder = tmp_path / "profiles" / "only"
    folder.mkdir(parents=True)
    (folder / "profile.yml").write_text("bundles: [base]")
    return {str(row.id): row for row in compose("only", [], tmp_path, environ={}).rows}


def test_the_rows_of_base_and_their_literal_configs(tmp_path: Path) -> None:
    found = {key: texts(dict(row)) for key, row in base_rows(tmp_path).items()}
    assert found == {key: {"id": key, "name": key, **fields} for key, fields in BASE.items()}


def test_headless_adds_its_two_rows_and_restates_four() -> None:
    found = rows("headless")
    assert list(found) == [*BASE, "headless-startup", "headless-runner"]
    assert [key for key, row in found.items() if row.patched] == [
        "system-prompt", "sandbox-policy", "approval", "tools",
    ]  # fmt: skip
    assert texts(dict(found["headless-runner"])) == {
        "id": "headless-runner",
        "name": "headless-runner",
        "inject": ["headlessStartup"],
        "config": {"task": "svc.headlessStartup.task"},
    }
    assert texts(found["tools"].config) == {"mode": "get(env, 'DSH_TOOLS_MODE')"}
    persona = found["system-prompt"].config["persona"]
    assert "{{model}}" in persona
    assert "{{cwd}}" in persona


def test_demo_brings_the_stand_in_and_selects_it() -> None:
    found = rows("demo")
    assert "llm-offline" in found
    assert found["agent-default-model"].config == {"provider": "offline", "model": "demo"}
    assert found["agent-default-model"].patched == ["demo"]


def evaluated(row: Row, env: dict[str, str], flags: dict[str, Any]) -> Any:
    ctx = Context()
    ctx.provide("headlessStartup", {"task": "t", **flags})
    return config_data(row.config, Scope(env=env, cwd="/ws", profile="p", home=HOME, ctx=ctx))


@pytest.mark.parametrize(
    ("env", "flags", "mode", "policy"),
    [
        ({}, {}, "workspace-write", "ask"),
        ({"DSH_PERMISSION_MODE": "danger-full-access"}, {}, "danger-full-access", "never"),
        ({"DSH_PERMISSION_MODE": "read-only"}, {}, "read-only", "ask"),
        ({"DSH_PERMISSION_MODE": "workspace-write"}, {}, "workspace-write", "ask"),
        ({"DSH_PERMISSION_MODE": "danger-full-access"}, {"permissionMode": "read-only"}, "read-only", "ask"),
        ({"DSH_PERMISSION_MODE": "read-only"}, {"permissionMode": None}, "read-only", "ask"),
        ({"DSH_PERMISSION_MODE": ""}, {}, "", "ask"),
    ],
)
def test_headless_is_confined_to_its_workspace_unless_flag_or_variable_choose(
    env: dict[str, str], flags: dict[str, Any], mode: str, policy: str
) -> None:
    found = rows("headless")
    assert evaluated(found["sandbox-policy"], env, flags) == {
        "mode": mode,
        "workspaceRoot": "/ws",
        "protectedPaths": [str(HOME)],
    }
    assert evaluated(found["approval"], env, flags) == {"policy": policy}


def test_demo_is_unconfined_unless_flag_or_variable_choose() -> None:
    found = rows("demo")
    for env, flags, mode, policy in (
        ({}, {}, "danger-full-access", "never"),
        ({"DSH_PERMISSION_MODE": "read-only"}, {}, "read-only", "ask"),
        ({}, {"permissionMode": "workspace-write"}, "workspace-write", "ask"),
    ):
        assert evaluated(found["sandbox-policy"], env, flags)["mode"] == mode
        assert evaluated(found["approval"], env, flags)["policy"] == policy


def test_an_unset_tools_mode_is_absent() -> None:
    assert evaluated(rows("headless")["tools"], {}, {}) == {}


def test_every_shipped_bundle_belongs_to_a_profile_but_that_of_a_command() -> None:
    assert shipped_names("bundles") == ["base", "demo", "headless", "replay"]
    assert shipped_names("profiles") == ["demo", "headless"]
