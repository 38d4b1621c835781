"""Time and memory to open, filter and sort a run of 100,000 trajectories."""

import json
import os
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image

from vtune.schema.message import Message, Picture
from vtune.schema.parquet import write_trajectories
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Call, Crop, Trajectory
from vtune.view.index import Index
from vtune.view.place import Place
from vtune.view.query import facets, parse_query, select

STEPS, EACH = 200, 500
WORDS = ["the", "red", "blue", "sign", "left", "right", "of", "at", "digit", "crop", "look", "again"]

QUERIES = (
    "source:lens right:no",
    "faithful:yes reward>0.5 sort:-reward",
    "flag:whole_image calls>1",
    "stop:length sort:-tokens",
    '"the red sign" right:no',
    "nothing-says-this",
    "-source:lens -status:ok sort:step",
    "sort:answer",
)


def generated(step: int) -> Iterator[Trajectory]:
    """Conversations with about two calls, 2,000 characters and three pictures each."""
    draw = random.Random(step)
    noise = np.random.default_rng(step).integers(0, 255, (16, 16, 3), np.uint8)
    content = BytesIO()
    Image.fromarray(noise).save(content, "PNG")
    for number in range(EACH):
        right = draw.random() < 0.6
        words = " ".join(
            draw.choices(
                ["the", "red", "blue", "sign", "left", "right", "of", "at", "digit", "crop", "look", "again"],
                k=350,
            )
        )
        yield Trajectory(
            sample_id=f"lens/{draw.randrange(5000)}",
            source=draw.choice(["lens", "vstar", "charts", "counting"]),
            group=number // 8,
            rollout=number % 8,
            messages=(
                Message("user", "<image>Which digit is on the red sign?", (0,)),
                Message("assistant", f"{words}\n<answer>{draw.randrange(10)}</answer>"),
            ),
            images=(
                Picture(data=content.getvalue()),
                *(Picture(data=content.getvalue(), origin=f"call:{k}") for k in (0, 1)),
            ),
            calls=tuple(
                Call(
                    tool="python",
                    arguments='{"code": "crop"}',
                    status=draw.choice(["ok", "ok", "ok", "error"]),
                    images=(k + 1,),
                    crops=(Crop(0, (1.0, 2.0, 9.0, 9.0), k + 1),),
                    span=(2, 9),
                    flags=("whole_image",) if draw.random() < 0.1 else (),
                )
                for k in (0, 1)
            ),
            token_ids=tuple(range(400)),
            loss_mask=(False,) * 100 + (True,) * 300,
            logprobs=(None,) * 100 + (-0.5,) * 300,
            answer=str(draw.randrange(10)),
            stop_reason=draw.choice(["answer", "answer", "length"]),
            reward=Reward(total=draw.random(), accuracy=float(right), format=1.0, tool=0.5, why="exact"),
            tool_scores=(draw.choice([0.0, 1.0]), 0.0),
            advantage=draw.gauss(0, 1),
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "recipe.yaml").touch()
    (folder / "metrics.jsonl").write_text(
        "".join(
            json.dumps({"step": step, "source": source, "reward": step / STEPS, "accuracy": step / STEPS})
            + "\n"
            for step in range(STEPS)
            for source in ("lens", "vstar", "charts", "counting", "all")
        )
    )
    for step in range(STEPS):
        write_trajectories(folder / "trajectories" / f"step-{step:06d}.parquet", generated(step))
    return folder


def test_a_run_of_100_000_trajectories(run: Path) -> None:
    place = Place(run, "run", "run")
    began = time.process_time()
    Index(place).refresh()
    print(f"\nindexed {STEPS * EACH} trajectories in {time.process_time() - began:.1f} s of CPU")
    began = time.perf_counter(), time.process_time()
    index = Index(place)
    index.refresh()
    facets(index.table)
    spent = time.perf_counter() - began[0], time.process_time() - began[1]
    print(f"opened in {spent[0]:.2f} s ({spent[1]:.2f} s of CPU)")
    for text in QUERIES:
        began = time.perf_counter(), time.process_time()
        found = select(index.table, parse_query(text), {})
        first = index.table.take(found[:100]).to_pylist()
        spent = time.perf_counter() - began[0], time.process_time() - began[1]
        print(f"{spent[0]:.3f} s ({spent[1]:.3f} s of CPU): {text!r}, {len(found)} found, {len(first)} shown")
    print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB, with what generated the run")


def test_the_viewer_itself(run: Path) -> None:
    Index(Place(run, "run", "run")).refresh()
    words = [sys.executable, "-m", "vtune.cli.main", "view", str(run), "--port", "0", "--json"]
    began = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = json.loads("".join(iter(server.stdout.readline, "}\n")) + "}")["url"]
        spent = time.perf_counter() - began, cpu_of(server.pid)
        print(
            f"\n`vtune view` answers after {spent[0]:.2f} s ({spent[1]:.2f} s of CPU), its index made before"
        )
        asked = [(f"api/0/list?q={quote(text)}", text) for text in QUERIES]
        asked += [
            (f"api/0/{name}", name) for name in ("run", "one/step-000100/77", "picture/0/step-000100/77")
        ]
        asked += [("api/places", "places"), ("api/films", "films"), ("api/film?sample=lens%2F7", "one film")]
        for path, name in asked:
            began, before = time.perf_counter(), cpu_of(server.pid)
            with urlopen(url + path) as answer:
                size = len(answer.read())
            spent = time.perf_counter() - began, cpu_of(server.pid) - before
            print(f"{spent[0]:.3f} s ({spent[1]:.2f} s of CPU), {size >> 10} KiB: {name!r}")
        status = Path(f"/proc/{server.pid}/status").read_text()
        print(re.findall(r"VmHWM:.*|RssAnon:.*", status))
        server.terminate()


def cpu_of(process: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
