"""How many bytes a token stands for: a start value, corrected by what a provider reports of a request.

A small request says more of the provider's frame than of its tokens. So a number of tokens at the start
ratio is always mixed in, and a sample counts as much as it is large.
"""

START_RATIO = 3.5
"""Bytes a token, before anything is known: between English prose and code, and right for Chinese."""
MIN_RATIO = 1.0
MAX_RATIO = 8.0
_PRIOR_TOKENS = 500


def learned_ratio(weight: int, tokens: int) -> float:
    """Bytes a token in a session whose last request weighed so many bytes and took so many tokens."""
    ratio = (_PRIOR_TOKENS * START_RATIO + weight) / (_PRIOR_TOKENS + tokens)
    return min(max(ratio, MIN_RATIO), MAX_RATIO)


def is_credible(tokens: int, weight: int) -> bool:
    """Whether so many bytes can be so few tokens; a gateway may report a part, or nothing but zeros."""
    return tokens > 0 and tokens * MAX_RATIO >= weight
