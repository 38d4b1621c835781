"""Which certificates service clients trust, read once per process rather than per client (25 ms)."""

import functools
import os
import ssl

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables that override the default locations of certificates."""


def trusted() -> ssl.SSLContext:
    """The TLS context that an httpx2 client would create for itself."""
    return _made(tuple(os.environ.get(name) for name in VARIABLES))


@functools.cache
def _made(_: tuple[str | None, ...]) -> ssl.SSLContext:
    import httpx2

    context: ssl.SSLContext = httpx2.create_ssl_context()
    return context
