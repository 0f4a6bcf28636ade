"""The certificate authorities that a server over TLS is judged by: the user's own, else those of certifi."""

import os
import ssl
from pathlib import Path

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""The first that is set names the authorities, as a file in PEM or a folder with hashed names."""


def chosen() -> tuple[str, str]:
    """The variable that counts and what it says; both empty where none is set."""
    return next(((name, path) for name in VARIABLES if (path := os.environ.get(name))), ("", ""))


def load_authorities(context: ssl.SSLContext) -> None:
    """Fill the context. Takes some 20 ms: not on the event loop.

    Raises:
        OSError: what the variable names cannot be read, or is neither file nor folder (`ssl.SSLError`, which
            is one, where it holds no certificate).
    """
    name, path = chosen()
    if not name:
        import certifi

        context.load_verify_locations(cafile=certifi.where())
    elif Path(path).is_dir():
        context.load_verify_locations(capath=path)
    elif name == "SSL_CERT_DIR":
        raise NotADirectoryError(20, "not a folder", path)
    else:
        context.load_verify_locations(cafile=path)
