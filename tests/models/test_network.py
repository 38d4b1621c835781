import random
import socket
from pathlib import Path

import pytest

from vtune.models import network
from vtune.models.network import EPHEMERAL, FIRST, LAST, free_port


def given(monkeypatch: pytest.MonkeyPatch, file: Path, first: int) -> None:
    file.write_text(f"{first}\t60999\n")
    monkeypatch.setattr(network, "EPHEMERAL", file)


@pytest.mark.skipif(not EPHEMERAL.exists(), reason="no file with the ports of connections on this system")
def test_the_rendezvous_port_is_outside_the_ephemeral_range() -> None:
    first = int(EPHEMERAL.read_text().split()[0])
    random.seed(0)
    ports = {free_port() for _ in range(20)}
    assert random.random() == random.Random(0).random(), "what a run draws depends on its ports"
    assert len(ports) > 10, "two runs that start together would meet at one port"
    assert first <= FIRST or all(FIRST <= port < min(first, LAST + 1) for port in ports)


def test_a_port_in_use_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given(monkeypatch, tmp_path / "range", FIRST + 3)
    with socket.socket() as first, socket.socket() as second:
        for taken in (first, second):
            taken.bind(("", free_port()))
            taken.listen()
        held = {one.getsockname()[1] for one in (first, second)}
        assert len(held) == 2
        assert free_port() not in held


def test_if_all_ports_are_ephemeral_one_of_them_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given(monkeypatch, tmp_path / "range", 1024)
    with socket.socket() as meeting:
        meeting.bind(("", free_port()))
