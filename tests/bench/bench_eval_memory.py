"""Peak memory of `vtune eval` for 10 and for 40 pictures of 36 MB (4000 x 3000 pixels of noise)."""

import json
import os
import subprocess
import sys
from pathlib import Path

PICTURES = (10, 40)

CODE = """
import io, json, os, resource, sys
from pathlib import Path
from PIL import Image
from tests.conftest import build
from tests.runs.commands import setting, vtune
from tests.runs.looking import Looking
from vtune.config import find, load_recipe
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.questions import read_records
import vtune.runs.agent.engines as engines

folder, pictures, many = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
build(folder / "tiny", "qwen2_5_vl")
for number in range(pictures):
    here = folder / "bench" / ("direct_attributes", "relative_position")[number % 2]
    here.mkdir(parents=True, exist_ok=True)
    noise = Image.frombytes("RGB", (4000, 3000), os.urandom(36_000_000))
    noise.save(here / f"{number:04d}.png", compress_level=0)
    note = {"target_object": ["sign"], "bbox": [[3000, 700, 400, 300]], "question": "Which?"}
    note["options"] = ["a sign", "a cup"]
    (here / f"{number:04d}.json").write_text(json.dumps(note))
data = folder / "bench"
suite = load_recipe(find("vstar", "eval_suites"), EvalSuite, [f"data=[{data}]"])
samples = list(read_records(suite))
engines.TransformersEngine = lambda policy, **_: Looking(policy.chat, samples)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
words = ["eval", "--suite", "vstar", "--model", folder / "tiny", "--data", data, "--out", folder / "out"]
small = setting(dtype="float32", threads=1, images__max_pixels=12544, rollout__max_tokens=4000)
ended = vtune(*words, *small, "--json")
assert ended.code == 0, ended.err
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = json.loads(ended.out)
size = sum(file.stat().st_size for file in data.rglob("*.png"))
print(json.dumps({"before": before, "after": after, "seconds": found["seconds"], "bytes": size}))
"""


def test_peak_memory(tmp_path: Path) -> None:
    for pictures in PICTURES:
        folder = tmp_path / str(pictures)
        folder.mkdir()
        ended = subprocess.run(
            [sys.executable, "-c", CODE, folder, str(pictures)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(ended.stdout.splitlines()[-1])
        print(
            f"\n{pictures} pictures, {found['bytes'] / 1e6:.0f} MB: peak {found['after'] / 1024:.0f} MiB "
            f"({found['before'] / 1024:.0f} before), {found['seconds']:.0f} s"
        )
