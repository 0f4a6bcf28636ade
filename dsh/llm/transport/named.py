"""The names that providers give their errors, and the failure code of each. Wording comes after them.

Gathered from public documentation, source and users' reports of OpenAI, Azure, Anthropic, DeepSeek, Google's,
Moonshot's, Zhipu's and Alibaba's compatible endpoints, OpenRouter, LiteLLM, vLLM, SGLang and llama.cpp;
`tests/data/provider_errors.json` holds an example of each.
"""

import re
from collections.abc import Iterable

_KINDS: tuple[tuple[str, str], ...] = (
    (
        "QUOTA",
        "insufficient_quota insufficient_balance insufficient_credits insufficient_funds "
        "insufficient_user_quota billing_error billing_not_active billing_hard_limit_reached budget_exceeded "
        "exceeded_current_quota_error arrearage payment_required usage_limit_reached 1113",
    ),
    (
        "CONTEXT_WINDOW_EXCEEDED",
        "context_length_exceeded context_window_exceeded context_window_exceeded_error "
        "exceed_context_size_error model_context_window_exceeded prompt_too_long 1261",
    ),
    (
        "AUTH",
        "invalid_api_key api_key_invalid incorrect_api_key incorrect_api_key_error authentication_error "
        "invalid_authentication_error authentication_failed unauthorized unauthenticated permission_error "
        "permission_denied permission_denied_error access_denied forbidden invalid_token",
    ),
    (
        "RATE_LIMIT",
        "rate_limit rate_limit_exceeded rate_limit_error rate_limit_reached_error rate_limited "
        "rate_limit_reached too_many_requests too_many_requests_error resource_exhausted throttling "
        "throttling_error throttling_exception throttling_rate_quota throttling_allocation_quota 1302 1303",
    ),
    ("HTTP_404", "not_found not_found_error model_not_found model_not_exist deployment_not_found"),
    ("TIMEOUT", "timeout timeout_error request_timeout gateway_timeout deadline_exceeded"),
    (
        "SERVER",
        "overloaded_error overloaded engine_overloaded engine_overloaded_error model_overloaded server_error "
        "internal_server_error internal_error internal api_error service_unavailable "
        "service_unavailable_error unavailable server_overloaded bad_gateway upstream_error",
    ),
    ("CONTENT_FILTER", "content_filter content_policy_violation responsible_ai_policy_violation"),
    (
        "INVALID_REQUEST",
        "invalid_request_error invalid_request bad_request_error bad_request invalid_argument "
        "invalid_parameter invalid_parameter_error unsupported_parameter unsupported_value request_too_large "
        "unprocessable_entity_error validation_error invalid_prompt",
    ),
)
_CODES = {name: (rank, code) for rank, (code, names) in enumerate(_KINDS) for name in names.split()}
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_GAP = re.compile(r"[^a-z0-9]+")


def code_of(names: Iterable[str]) -> str | None:
    """The failure code behind an error's names; the most special one counts, None where none is known."""
    found = [known for name in names if (known := _CODES.get(_plain(name))) is not None]
    return min(found)[1] if found else None


def _plain(name: str) -> str:
    """`RateLimitError`, `RESOURCE_EXHAUSTED`, `Throttling.RateQuota` in one spelling."""
    return _GAP.sub("_", _HUMP.sub("_", name).lower()).strip("_")
