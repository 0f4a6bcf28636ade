"""Finds the recorded corpus beside the checkout; tests that need it skip with a reason where it is not."""

from pathlib import Path

import pytest

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"

if CORPUS.is_dir():
    assert any(CORPUS.glob("*/*.jsonl*")), f"the corpus folder {CORPUS} holds no logs"

needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus folder at ../shared/corpus")
