"""Config keys and defaults of the shipped rows: what users' patches rely on (`spec/composition.md` §14)."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dsh.composition.compose import compose
from dsh.composition.mount.resolve import find_plugin
from dsh.kernel.schema import ValidationError, resolve_config

REQUIRED = object()
MIB = 1024 * 1024

SHELL = {
    "timeoutMs": 120_000, "maxTimeoutMs": 600_000, "maxOutputBytes": 64_000, "maxSpillBytes": 64 * MIB,
    "graceMs": 3_000, "cwd": None,
}  # fmt: skip
HOOKS = {
    "configPath": REQUIRED, "defaultTimeoutMs": 600_000, "onFailure": "pass", "concurrent": True,
    "stderrSummaryMaxChars": 500, "sessionStartWaitMs": 30_000, "maxStopContinuations": 8,
    "maxContextChars": 20_000,
}  # fmt: skip
FILES = {"cwd": None, "diffBasisMaxBytes": 10 * MIB}

KEYS: dict[str, dict[str, Any]] = {
    "agent": {},
    "agent-default-model": {"provider": REQUIRED, "model": REQUIRED, "reasoningEffort": None},
    "agent-instructions": {
        "maxBytes": REQUIRED, "maxSourceBytes": MIB, "projectRootMarkers": [".git"],
        "instructionFileCandidates": ["AGENTS.md", "CLAUDE.md"],
        "localInstructionFileCandidates": ["AGENTS.local.md", "CLAUDE.local.md"], "dshHome": None,
    },
    "agent-loop": {"agents": [], "maxParallelToolCalls": 10},
    "approval": {"policy": "ask"},
    "bash-local": SHELL,
    "bash-sandbox": SHELL,
    "command-compact": {},
    "commands": {},
    "compaction-basic": {
        "thresholdRatio": 0.8, "retainRatio": 0.16, "retainTokens": None, "summarizationProvider": "",
        "summarizationModel": "", "modelPolicies": [], "auto": True, "maxTokens": 8192,
        "compactionRetries": 1, "maxOverflowRetries": 1,
    },
    "credentials": {"watch": True, "debounceMs": 100},
    "fs-local": FILES,
    "fs-observation-policy": {},
    "fs-sandbox": FILES,
    "headless-runner": {"task": REQUIRED},
    "headless-startup": {},
    "hooks-claude-code": HOOKS | {"pluginRoot": None, "projectDir": None},
    "hooks-codex": HOOKS | {"model": ""},
    "llm": {},
    "llm-anthropic": {"providers": {}},
    "llm-deepseek": {
        "apiKeyEnv": "DEEPSEEK_API_KEY", "maxTokens": 256_000, "defaultContextWindow": 1_000_000,
        "streamIdleTimeoutMs": 300_000, "baseURL": None, "thinking": None, "reasoningEffort": None,
    },
    "llm-offline": {},
    "llm-openai": {"providers": {}},
    "llm-replay": {"file": None, "overrideFile": None, "childFiles": None, "providers": {}, "paceMs": 0},
    "llm-retry": {},
    "llm-scripted": {"file": None, "replies": None, "provider": "scripted", "repeatLast": False, "paceMs": 0},
    "mcp-client": {
        "transport": REQUIRED, "serverName": REQUIRED, "command": None, "args": [], "env": {}, "cwd": "",
        "url": None, "headers": {}, "startupTimeoutMs": 30_000, "toolCallTimeoutMs": 60_000,
        "toolCallTotalTimeoutMs": 1_800_000, "failOnStartupError": False,
    },
    "model-catalogue": {"models": {}},
    "permission": {"defaultPreset": None},
    "repeat-tool-reminder": {
        "thresholds": [3, 5, 8], "argumentsPreviewChars": 500, "include": [], "exclude": [],
        "blockAt": None, "endTurnAt": None,
    },
    "sandbox": {
        "probeTimeoutMs": 5000, "requireFull": False, "checkAtStart": True, "runnerCommand": [],
        "runnerFailureSignatures": [],
    },
    "sandbox-policy": {
        "mode": "read-only", "workspaceRoot": None, "extraRoots": [], "protectedPaths": [],
        "hiddenPaths": [], "network": True,
    },
    "session": {},
    "session-checkpoint-policy": {},
    "session-composition": {},
    "session-persistence-jsonl": {
        "root": REQUIRED, "packChunks": True, "compression": "zstd", "preparedSessionCacheSize": 5,
        "writeBatchMaxDelayMs": 200,
    },
    "session-projection": {},
    "session-projection-cache": {"writeEveryEvents": REQUIRED, "writeIntervalMs": REQUIRED},
    "session-stats": {},
    "session-query-sqlite": {
        "path": ":memory:", "openAt": "startup", "journalMode": "wal", "defaultLimit": 20, "maxLimit": 100,
        "snippetChars": 240,
    },
    "session-telemetry-otel": {"mode": "DISABLED", "shutdownTimeoutMillis": 3_000},
    "session-title": {"fallbackMaxWords": REQUIRED, "fallbackMaxBytes": REQUIRED, "maxTitleBytes": REQUIRED},
    "settings": {"path": None, "dshHome": None, "watch": True, "debounceMs": 100},
    "session-title-llm": {
        "targetWords": 5, "targetCjkCharacters": 10, "maxInputBytes": 4096, "maxOutputTokens": 64,
        "timeoutMs": 60_000, "provider": None, "model": None,
    },
    "shell-env": {"dshHome": None},
    "spill-local": {"root": None, "maxSessionBytes": 256 * MIB},
    "spill-policy": {"maxInlineBytes": None},
    "subprocess": {"keepEnv": [], "hideEnv": []},
    "system-prompt": {
        "persona": "", "includeHarnessIdentity": True, "includeRuntimeContext": True, "toolOrder": None,
    },
    "timeout-policy": {"defaultTimeoutMs": 1_800_000},
    "token-meter": {},
    "timer": {},
    "tool-ask-user-question": {},
    "tool-bash": {"enableRunInBackground": True},
    "tool-bash-persistent": {"backendType": "shell", "timeoutMs": 300_000, "maxOutputChars": 16_000},
    "tool-fs": {
        "readLimit": 2_000, "readMaxLineLength": 2_000, "readMaxBytes": 51_200, "readStreamMinSize": 10 * MIB,
    },
    "tool-fs-search": {
        "sampleOverCapGlobResults": REQUIRED, "globMaxResults": 100, "grepMaxMatches": 250,
        "grepMaxLineBytes": 2_000, "searchMetaMaxBytes": 65_536, "rawOutputMaxBytes": 20_000_000,
        "graceMs": 3_000, "stderrMaxBytes": 65_536, "timeoutMs": 30_000,
    },
    "tool-str-replace-editor": {"maxOutputChars": 16_000, "description": None},
    "skill": {"collectCacheMaxEntries": 128},
    "skill-filesystem": {
        "providerName": "filesystem", "includeDefaultRoots": True, "customSkillDirs": [], "watch": True,
        "watchStabilityThresholdMs": 200, "watchMaxProjects": 128, "bundledSkillDir": None,
    },
    "tool-skill": {"catalogDescriptionMaxLength": 500},
    "jobs": {"maxConcurrentJobsPerOwner": 10},
    "tool-jobs": {
        "waitTimeoutMs": 30_000,
        "maxWaitTimeoutMs": 600_000,
        "completionDelivery": "wakeup",
        "maxConsecutiveWakes": 3,
    },
    "tool-todo": {"allowParallelInProgress": REQUIRED},
    "tool-result-pruner": {"thresholdChars": 8192, "headChars": 4096, "tailChars": 1024},
    "tool-web": {
        "search": True, "fetch": True, "searchMaxResults": 8, "searchMaxQueries": 4,
        "searchTimeoutMs": 30_000, "fetchTimeoutMs": 30_000, "fetchMaxOutputChars": 200_000,
    },
    "tools": {"mode": "native", "maxParallelSubCalls": 10},
    "user-questions": {},
    "web": {"searchProvider": None, "fetchProvider": None},
    "web-fetch-http": {
        "maxUrlLength": 2048, "maxResponseBytes": 5_000_000, "maxBodyChars": 100_000, "timeoutMs": 30_000,
        "maxRedirects": 5,
    },
    "web-search-deepseek": {
        "apiKeyEnv": "DEEPSEEK_API_KEY", "baseURL": None, "model": "deepseek-v4-flash", "maxTokens": 4096,
        "maxUses": 5, "apiVersion": "2023-06-01",
    },
    "web-search-exa": {"apiKeyEnv": "EXA_API_KEY"},
    "web-search-perplexity": {"apiKeyEnv": "PERPLEXITY_API_KEY"},
}  # fmt: skip
"""The original's keys; ours come on top where a row has more. `REQUIRED` has no default."""


def schema_of(row: str) -> type[msgspec.Struct]:
    found: type[msgspec.Struct] = find_plugin(row, Path("/")).Config
    return found


def test_every_shipped_row_is_held_here() -> None:
    shipped = {
        row.name for profile in ("demo", "headless") for row in compose(profile, [], Path("/none")).rows
    }
    assert shipped <= KEYS.keys()


@pytest.mark.parametrize("row", KEYS)
def test_the_keys_of_a_row_and_their_defaults(row: str) -> None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(schema_of(row))}
    found = {}
    for key in KEYS[row]:
        field = fields[key]
        found[key] = field.default_factory() if callable(field.default_factory) else field.default
        found[key] = REQUIRED if field.required else found[key]
    assert found == KEYS[row]


@pytest.mark.parametrize("row", KEYS)
def test_a_key_that_no_row_has_is_refused_by_each(row: str) -> None:
    with pytest.raises(ValidationError, match="noSuchKey"):
        resolve_config(schema_of(row), {"noSuchKey": 1})
