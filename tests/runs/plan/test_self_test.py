"""`vtune doctor --self-test`."""

import json

import pytest

from tests.runs.commands import vtune
from vtune.errors import DataError, ServiceError
from vtune.runs.plan import self_test
from vtune.sandbox.attacks.suite import SHIPPED, read_suite
from vtune.schema.pixels import decode_picture


def test_the_self_tests_attacks_are_shipped_and_quick() -> None:
    attacks = read_suite(SHIPPED, self_test.ATTACKS)
    assert len(attacks) == len(self_test.ATTACKS) > 5
    assert all(attack.weak_ok and attack.soft <= 2 for attack in attacks)


def test_every_bomb_is_small_and_refused() -> None:
    for content in self_test.bombs().values():
        assert len(content) < 1 << 20
        with pytest.raises(DataError):
            decode_picture(content)
    assert self_test.picture_bombs() == ""


def test_the_picture_checks_hold() -> None:
    assert self_test.session_pictures() == ""


@pytest.mark.usefixtures("probed")
def test_a_breach_in_the_self_test_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks() -> str:
        raise ServiceError("no sandbox")

    trials = {"fine": lambda: "", "bad": lambda: "it leaked", "broken": breaks}
    monkeypatch.setattr(self_test, "TRIALS", trials)
    ended = vtune("doctor", "--self-test", "--json")
    assert ended.code == 1
    rows = {row["name"]: row for row in json.loads(ended.out)["checks"]}
    assert rows["self-test: fine"]["level"] == "ok"
    assert (rows["self-test: bad"]["level"], rows["self-test: bad"]["found"]) == ("fail", "it leaked")
    assert rows["self-test: broken"]["found"] == "no sandbox"


@pytest.mark.usefixtures("probed")
def test_without_the_option_no_self_test_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "TRIALS", {"bad": lambda: "it leaked"})
    ended = vtune("doctor", "--json")
    assert "self-test" not in ended.out


def test_a_missing_guard_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "decode_picture", lambda content: None)
    assert "a hairline of 200000 pixels was decoded" in self_test.picture_bombs()
