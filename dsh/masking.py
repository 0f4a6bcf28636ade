"""Takes keys and passwords out of what is shown or stored: by form, in data by name too."""

import re

MASK = "***"

# Each is compiled when something is masked first: a run that shows nothing does without.
_KEY = (
    r"\b(?:(?P<key>[spr]k[-_])[A-Za-z0-9][A-Za-z0-9_\-]{6,}"
    r"|(?P<word>(?:api|key|token)[-_])(?=[A-Za-z_\-]*[0-9])[A-Za-z0-9][A-Za-z0-9_\-]{6,}"
    r"|(?P<plain>gsk_|hf_|gh[opsur]_|xai-|pplx-|csk-|AKIA)[A-Za-z0-9]{16,}"
    r"|(?P<mixed>github_pat_|glpat-|nvapi-|AIza)[A-Za-z0-9_\-]{16,}"
    r"|(?P<jwt>eyJ)[A-Za-z0-9_\-]{8,4000}\.[A-Za-z0-9_\-]{8,4000}\.[A-Za-z0-9_\-]+)"
)
_SECRET_NAME = (
    r"(?:(?:^|[-_. ])|(?<=[a-z0-9])(?=[A-Z]))"
    r"(?i:token|password|passwd|passphrase|secret|credential|authorization|cookie"
    r"|(?:api|access|secret|private)[-_]?key|(?<=-)key)\Z"
)
_AUTHORIZATION = r"(?i:\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=\-]{6,})"
_USER = r"(?<=://)[^/?#\s]+@"
_QUERY = (
    r"(?i:([?&](?:[\w.\-]*[-_.])?"
    r"(?:(?:api|access)?key|token|secret|passw(?:or)?d|sig(?:nature)?|credential|auth)=)[^&#\s'\"]+)"
)


def masked(text: str) -> str:
    """The text with `***` in place of what has the form of a key, an `Authorization`, a secret of a URL.

    `sk-…` keeps its prefix and `Bearer …` its scheme. A key of another form is not recognised: whoever
    knows it replaces it first.
    """
    text = masked_urls(re.sub(_AUTHORIZATION, rf"\1 {MASK}", text))
    return re.sub(_KEY, lambda found: f"{found[found.lastgroup or 0]}{MASK}", text)


def masked_value(key: str, value: str) -> str:
    """A text that stands under this key: all of it is masked where the key says what it is.

    `token`, `dbPassword` and `x-api-key` do; `tokenizer`, `maxTokens` and `apiKeyEnv` do not.
    """
    shown = masked(value)
    return MASK if value and shown == value and re.search(_SECRET_NAME, key) else shown


def masked_urls(text: str) -> str:
    """The text with `***` for user and password in every URL, and for what its query calls a secret."""
    text = re.sub(_USER, f"{MASK}@", text) if "@" in text else text
    return re.sub(_QUERY, rf"\1{MASK}", text) if "=" in text else text
