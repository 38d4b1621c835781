"""What sessions may read from the machine's Python."""

import sys
from pathlib import Path

import pytest

from vtune.sandbox.guest import tiers


def test_packages_of_an_environment_beneath_are_read_and_a_checkout_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A .pth file puts both on the path: the packages that ours are based on, and an editable install."""
    beneath, checkout = tmp_path / "base" / "site-packages", tmp_path / "checkout"
    beneath.mkdir(parents=True)
    checkout.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(beneath), str(checkout)])
    assert str(beneath) in tiers.runtime()
    assert not any(str(checkout).startswith(path) for path in tiers.runtime())
