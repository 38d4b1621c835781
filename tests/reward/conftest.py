from collections.abc import Iterator

import pytest

from tests.reward.sessions import Sessions, opened


@pytest.fixture(scope="package")
def sessions() -> Iterator[Sessions]:
    """One sandbox for the whole folder."""
    with opened() as sessions:
        yield sessions
