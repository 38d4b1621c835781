"""RL on data whose rows run no code, on a machine without a sandbox."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import numbers, rl, setting, vtune
from tests.scripted import draw_with
from vtune.errors import SandboxUnavailable
from vtune.sandbox.broker import Sandbox
from vtune.schema.parquet import read_samples, write_samples

pytestmark = pytest.mark.train


def test_no_sandbox_is_started_for_rows_without_code(
    tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_: Sandbox) -> None:
        raise SandboxUnavailable("no tier here")

    monkeypatch.setattr(Sandbox, "_up", refused)
    draw_with(monkeypatch, lambda policy, **_: ScriptedEngine(policy.chat, ["<answer>0</answer>"]))
    words = setting(steps=1, group_size=2, reward__tool=0.0)
    samples = list(read_samples(lens / "train.parquet"))
    write_samples(tmp_path / "plain.parquet", [replace(one, tools=()) for one in samples])
    done = vtune(*rl(tiny.resolve(), tmp_path / "plain.parquet", tmp_path / "plain", *words))
    assert done.code == 0, done.err
    assert "sandbox:" not in done.err
    assert numbers(tmp_path / "plain")[0, "all"]["trajectories"] > 0
    # The same with code needs a sandbox.
    refusal = vtune(*rl(tiny.resolve(), lens / "train.parquet", tmp_path / "code", *words))
    assert refusal.code != 0
    assert "no tier here" in refusal.err
