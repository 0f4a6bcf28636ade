"""How many tokens a measure of text stands for: a start value, corrected by what a provider reports.

A small request says more of the provider's frame than of its tokens. So a number of tokens at the start value
is always mixed in, and a report counts as much as its request is large.
"""

START_RATIO = 3.5
"""Bytes a token, before anything is known: between English prose and code, and right for Chinese."""
MIN_RATIO = 1.0
MAX_RATIO = 8.0

START_FACTOR = 4 / START_RATIO
"""Tokens for each token of the log price, before anything is known."""
MIN_FACTOR = 4 / MAX_RATIO
MAX_FACTOR = 8.0
"""A script of two tokens a character; the log price says four characters a token."""

_PRIOR_TOKENS = 500


def learned_ratio(weight: int, tokens: int) -> float:
    """Bytes a token in a session whose last request weighed so many bytes and took so many tokens."""
    ratio = (_PRIOR_TOKENS * START_RATIO + weight) / (_PRIOR_TOKENS + tokens)
    return min(max(ratio, MIN_RATIO), MAX_RATIO)


def learned_factor(price: int, tokens: int) -> float:
    """Tokens for each token of the log price, where the last request had that price and took so many."""
    factor = (_PRIOR_TOKENS + tokens) / (_PRIOR_TOKENS / START_FACTOR + price)
    return min(max(factor, MIN_FACTOR), MAX_FACTOR)


def is_credible(tokens: int, weight: int) -> bool:
    """Whether so many bytes can be so few tokens; a gateway may report a part, or nothing but zeros."""
    return tokens > 0 and tokens * MAX_RATIO >= weight
