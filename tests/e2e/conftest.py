"""What the end-to-end tests share: a workspace of their own and a scripted model."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.workspace import Workspace
from tests.e2e.model import Model, serve


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    """A workspace with an empty home."""
    return Workspace(tmp_path)


@pytest.fixture
def answering(space: Workspace) -> Iterator[Callable[..., Model]]:
    """Start a model that gives these replies (the last repeats), and send the workspace's runs to it."""
    with ExitStack() as stack:

        def start(*replies: dict[str, Any]) -> Model:
            model = stack.enter_context(serve(list(replies)))
            space.use_model(model.base_url)
            return model

        yield start
