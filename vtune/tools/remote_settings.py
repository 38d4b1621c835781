"""Recipe keys that all tools with HTTP requests share."""

from vtune.judge.key import check_no_login
from vtune.tools.http import Patience


def check_remote(url: str | None, token_env: str | None, patience: Patience | None, *, local: bool) -> None:
    """Check that URL and patience are set if and only if something is asked over HTTP, and the URL's form.

    Raises:
        ValueError: If not.
    """
    if url is not None:
        check_no_login(url, "token_env")
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is not a URL: write http://HOST:PORT")
    if (patience is None) != local:
        example = "patience: {timeout_s: 10, retries: 2, deadline_s: 60, concurrency: 16}"
        raise ValueError(
            "patience is only for HTTP services, not for an index or cached results: leave it out"
            if local
            else f"an HTTP service needs patience, e.g. {example}"
        )
    if token_env is not None and url is None:
        raise ValueError("token_env is only for url")


def bearer(token: str | None) -> dict[str, str]:
    """The header that carries a token; none where there is no token."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}
