"""The managed `DSH_*` variables."""

from collections.abc import Mapping

import pytest

from dsh.capabilities.shell_env import SHELL_ENV, EnvContributor, ShellEnv
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.plugins import shell_env
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from tests.aio import aio


async def service(ctx: Context) -> ShellEnv:
    await ctx.plugin(shell_env, {"dshHome": "/home/of/dsh"})
    found = ctx.get(SHELL_ENV)
    assert found is not None
    return found


def contributor(name: str, values: Mapping[str, str], *declared: str) -> EnvContributor:
    return EnvContributor(name, dict.fromkeys(declared, "what it is"), lambda session: values)


@aio
async def test_variables_are_sorted_and_contributed_ones_are_among_them() -> None:
    ctx = Context()
    env = await service(ctx)
    env.contribute(contributor("mine", {"DSH_ALPHA": "1"}, "DSH_ALPHA", "DSH_UNUSED"))

    assert list(env.collect(None).items()) == [
        ("DSH_ALPHA", "1"),
        ("DSH_HOME", "/home/of/dsh"),
        ("DSH_SHELL", "1"),
    ]


@aio
async def test_a_contribution_goes_with_its_plugin() -> None:
    ctx = Context()
    env = await service(ctx)

    def plugin(inner: Context) -> None:
        inner.use(SHELL_ENV).contribute(contributor("mine", {"DSH_ALPHA": "1"}, "DSH_ALPHA"))

    fiber = await ctx.plugin(plugin, inject=[SHELL_ENV])
    assert "DSH_ALPHA" in env.collect(None)
    await fiber.dispose()

    assert "DSH_ALPHA" not in env.collect(None)


@pytest.mark.parametrize("name", ["PATH", "DSH_lower", "DSH_", "DSH_HOME", "DSH_SESSION_JSONL"])
@aio
async def test_names_are_managed_new_and_well_formed(name: str) -> None:
    env = await service(Context())

    with pytest.raises(CompositionError, match=name):
        env.contribute(contributor("mine", {}, name))


@aio
async def test_an_undeclared_value_is_an_error() -> None:
    env = await service(Context())
    env.contribute(contributor("mine", {"DSH_OTHER": "1"}, "DSH_ALPHA"))

    with pytest.raises(CompositionError, match="DSH_OTHER"):
        env.collect(None)


@aio
async def test_a_command_of_a_session_knows_its_id() -> None:
    env = await service(Context())

    assert env.collect(Session(SessionHeader(id="session-1", created_at=0)))["DSH_SESSION_ID"] == "session-1"
