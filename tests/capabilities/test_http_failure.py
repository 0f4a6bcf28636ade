"""A failed exchange in the words of the system: what is found at the bottom of a chain, and the remedy."""

import errno
import itertools
import os
import socket
import ssl

import pytest

from dsh.capabilities.http_failure import reason, remedy


def chained(*errors: BaseException) -> BaseException:
    """The first error, caused by the second, and so on."""
    for outer, inner in itertools.pairwise(errors):
        outer.__cause__ = inner
    return errors[0]


def unverified(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, message
    return error


@pytest.mark.parametrize(
    ("error", "words", "hint"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('h', 1)"),
            "Connection refused",
            "port",
        ),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known", "host name"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "No route to host", "check the network"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "Network is unreachable", "check the network"),
        (ConnectionResetError(errno.ECONNRESET, "x"), os.strerror(errno.ECONNRESET), ""),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files", ""),
        (ValueError("odd"), "odd", ""),
        (ValueError(), "ValueError", ""),
        (unverified(10, "certificate has expired"), "certificate has expired", "renewed"),
        (unverified(9, "certificate is not yet valid"), "not yet valid", "clock"),
        (unverified(62, "Hostname mismatch, no 'h'."), "Hostname mismatch, no 'h'", "host name"),
        (unverified(64, "IP address mismatch"), "IP address mismatch", "address"),
        (unverified(20, "unable to get local issuer certificate"), "local issuer", "SSL_CERT_FILE"),
    ],
)
def test_words_and_remedy_come_from_the_bottom_of_the_chain(
    error: BaseException, words: str, hint: str
) -> None:
    wrapped = chained(RuntimeError("library"), OSError("All connection attempts failed"), error)
    for shown in (error, chained(RuntimeError("library"), error), wrapped):
        if isinstance(error, OSError):
            assert words in reason(shown)
            assert hint in remedy(shown)
            assert (remedy(shown) == "") == (hint == "")
    assert words in reason(error)


def test_of_several_attempts_the_first_is_told() -> None:
    group = ExceptionGroup("tries", [OSError(errno.EHOSTUNREACH, "No route to host"), OSError(1, "other")])
    assert reason(chained(OSError("All connection attempts failed"), group)) == "No route to host"
