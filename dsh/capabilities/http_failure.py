"""Why an exchange failed below HTTP, in the words of the system, and what a person can do about it."""

import errno
import os
import socket
import ssl

_NOT_TRUSTED = "name the authority that signed it in SSL_CERT_FILE"
_CERTIFICATE_REMEDIES = {
    9: "check the clock of this machine",
    10: "it has to be renewed; or check the clock of this machine",
    62: "check the host name in the URL",
    64: "check the address in the URL",
}
"""By OpenSSL's X509_V_ERR code; the others are those of a chain that ends nowhere."""
_NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"}


def reason(error: BaseException) -> str:
    """What went wrong, from the error of the operating system at the bottom."""
    found = _system_error(error)
    if isinstance(found, ssl.SSLCertVerificationError):
        return f"its certificate cannot be trusted: {found.verify_message.rstrip('.')}"
    if isinstance(found, ssl.SSLError) and found.reason:
        return f"TLS failed: {found.reason.replace('_', ' ').lower()}"
    if isinstance(found, ConnectionError) and found.errno:
        return os.strerror(found.errno)  # asyncio puts another text in its place
    if found is not None and found.strerror:
        return found.strerror
    return str(error) or type(error).__name__


def remedy(error: BaseException) -> str:
    """What to do about it; empty where nothing is known."""
    found = _system_error(error)
    match found:
        case ssl.SSLCertVerificationError():
            return _CERTIFICATE_REMEDIES.get(found.verify_code, _NOT_TRUSTED)
        case ssl.SSLError() if found.reason in _NO_TLS:
            return "the server speaks no TLS there: check https and the port in the URL"
        case socket.gaierror():
            return "check the host name and the network"
        case ConnectionRefusedError():
            return "check host and port"
        case OSError() if found.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
            return "check the network"
    return ""


def _system_error(error: BaseException) -> OSError | None:
    """The error of the operating system at the bottom: the libraries' own texts say less."""
    at: BaseException | None = error
    while at is not None and not isinstance(at, OSError):
        at = at.exceptions[0] if isinstance(at, BaseExceptionGroup) else at.__cause__ or at.__context__
    if isinstance(at, OSError) and at.errno is None and (below := at.__cause__ or at.__context__):
        return _system_error(below) or at
    return at
