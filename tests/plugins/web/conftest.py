"""What these tests share: an environment without proxies and authorities of the machine's own."""

from tests.llm.conftest import no_network_settings

__all__ = ["no_network_settings"]
