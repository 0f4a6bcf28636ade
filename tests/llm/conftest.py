"""What these tests share: an environment without proxies and authorities of the machine's own."""

import pytest

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@pytest.fixture(autouse=True)
def no_network_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the variables away that the HTTP client reads."""
    for name in (*PROXIES, *AUTHORITIES):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
