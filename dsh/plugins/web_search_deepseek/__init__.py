"""Row `web-search-deepseek`: search provider `deepseek-official`, the search that DeepSeek's models can do.

One search is one request to a model that searches on the server's side. It is logged before it is sent, and
what it used is counted with the session's other requests.
"""

from typing import Annotated

import msgspec

from dsh.capabilities.bounds import Amount, NonEmpty
from dsh.capabilities.credentials import CREDENTIAL_REFERENCE_UPDATED, CREDENTIALS
from dsh.capabilities.http import HTTP
from dsh.capabilities.settings import CREDENTIAL_REF
from dsh.capabilities.settings_section import install_settings_section
from dsh.capabilities.web import WEB
from dsh.kernel import Context
from dsh.llm.transport.credential import hide_key
from dsh.plugins.web_search_deepseek.provider import DeepSeekSearch

inject = [HTTP, WEB]
provide = ()


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row and of the settings section of its name."""

    api_key_env: Annotated[str, CREDENTIAL_REF] = "DEEPSEEK_API_KEY"
    """Name of the key, as an environment variable or in the credentials file; never the key itself."""
    base_url: NonEmpty | None = msgspec.field(default=None, name="baseURL")
    """Endpoint of the Messages API; unset: `DEEPSEEK_SEARCH_BASE_URL`, else the public one, to which the key
    is sent only where `DEEPSEEK_BASE_URL` does not name another server."""
    model: NonEmpty = "deepseek-v4-flash"
    """The model that searches."""
    max_tokens: Amount = 4096
    """Longest reply, in tokens."""
    max_uses: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5
    """How often the model may search for one query."""
    api_version: NonEmpty = "2023-06-01"
    """Version of the Messages API."""


sections = {"web-search-deepseek": Config}


def apply(ctx: Context, config: Config) -> None:
    web = ctx.use(WEB)
    hidden: set[str] = set()

    def changed(now: Config) -> None:
        if now.api_key_env not in hidden:
            hidden.add(now.api_key_env)
            hide_key(ctx, now.api_key_env)
        web.notify()

    section = install_settings_section(ctx, "web-search-deepseek", Config, config, changed=changed)
    changed(config)
    web.register_search(DeepSeekSearch(ctx, section.get))
    ctx.on(CREDENTIAL_REFERENCE_UPDATED, lambda _: web.notify())
    ctx.inject([CREDENTIALS], lambda _: web.notify())
