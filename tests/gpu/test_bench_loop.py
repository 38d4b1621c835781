import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import HANGS, ROOT
from tests.runs.commands import environment


@pytest.mark.train
def test_the_gpu_script_runs_whole_on_the_tiny_model(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    command = [sys.executable, "-m", "tests.gpu.bench_loop", "--tiny", "--steps", "1", "--out", str(out)]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=HANGS, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(out.read_text())
    assert json.loads(ended.stdout) == found
    assert found["conversations"] == 32
    assert 0 < found["mismatch"] < 1e-4
    assert found["share"]["rollout"] + found["share"]["update"] == pytest.approx(1)
    assert found["rollout_tokens_per_second"] > 0
    assert 0 < found["mfu_update"] < 1
