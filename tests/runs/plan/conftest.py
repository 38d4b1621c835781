import asyncio
import copy
from typing import Any

import pytest

from vtune.runs.plan import doctor


@pytest.fixture(scope="session")
def found_once() -> dict[str, Any]:
    """What `vtune doctor` finds in a sandbox that it starts."""
    return asyncio.run(doctor._sandbox())


@pytest.fixture
def probed(found_once: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One sandbox for all doctors that are asked about other things; `test_doctor.py` starts its own."""

    async def found() -> dict[str, Any]:
        return copy.deepcopy(found_once)

    monkeypatch.setattr(doctor, "_sandbox", found)
