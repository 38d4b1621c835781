"""V-Triune's chain: rows as published in Orsta-47k -> `data/orsta-47k` -> `rl/orsta-7b`, as shipped.

The policy is scripted and obedient. In curation it is right every other time, so that no sample is too easy
or too hard; in training it is always right, and must earn the full reward of each source.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chains.obedient import obedient
from tests.chains.overrides import check_unchanged, settings
from tests.chains.table import Record, record_earned
from tests.data.formats.published import jpeg, parquet
from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import numbers, vtune
from tests.scripted import draw_with
from vtune.config import find, load_recipe
from vtune.rollout.engine import Completion, Request
from vtune.runs.curate.recipe import DataRecipe
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.schema.sample import Sample

pytestmark = pytest.mark.train

FIGURE_8 = """<image>
Please detect all instances of the following category within the image:
{label}.

Let's think step by step and output the final answer in <answer> and </answer> tags.
For example:
Your detailed reasoning process here.
<answer>
[{{'bbox_2d': [x1,y1,x2,y2], 'label': label_name}}]
</answer>
"""
"""Word for word. It names neither the thought tags that equation 2 counts nor the unit of coordinates."""

REASONING = {
    "mm_math": "math",
    "geometry3k": "math",
    "mmk12": "math",
    "puzzlevqa": "puzzle",
    "algopuzzlevqa": "puzzle",
    "visualpuzzles": "puzzle",
    "scienceqa": "science",
    "scivqa": "science",
    "virl39k_science": "science",
    "chartqapro": "chart",
    "chartx": "chart",
    "table_vqa_bench": "chart",
    "virl39k_chart": "chart",
}
READING = {"clevr": "counting", "llava_ov_ocr": "ocr", "est_vqa": "ocr"}
TRUTHS = {"math": "\\frac{4}{3}", "puzzle": "12", "science": "0.5", "chart": "1984", "counting": "3"}
RATIO = ("iou_max_label_first", "iou_max_iou_first", "iou_completeness", "map", "map50", "map75")


def row(source: str, number: int, ability: str, text: str, truth: str, *, boxes: bool) -> dict[str, Any]:
    """A row as in Orsta-Data-47k."""
    weights = dict.fromkeys(RATIO, 0.0) | {"iou_max_label_first": 1.0, "iou_completeness": 0.3}
    return {
        "data_source": source,
        "images": [{"bytes": jpeg(hash_of(source) + number), "path": None}],
        "prompt": [{"content": text, "role": "user"}],
        "ability": ability,
        "reward_model": {
            "answer": "" if boxes else truth,
            "ground_truth": f"<answer>\n{truth}\n</answer>" if boxes else f"\\boxed{{{truth}}}",
            "accuracy_ratio": 1.0,
            "format_ratio": 0.1 if boxes else 0.0,
            "verifier": "detection" if boxes else "mathverify",
            "verifier_parm": {
                "det_verifier_normalized": True if boxes else None,
                "det_reward_ratio": weights if boxes else dict.fromkeys(RATIO),
            },
        },
        "extra_info": {"id": f"{source}-{number}", "image_path": f"images/{source}/{number}.jpg"},
    }


def hash_of(source: str) -> int:
    return sum(map(ord, source))


def plain_rows(source: str, ability: str) -> Iterator[dict[str, Any]]:
    """Questions as published: the loader appends the answer instruction (from the prompt pool)."""
    truth = TRUTHS.get(ability, f"NO {source.split('_')[0]}")
    text = f"<image>\nWhat is the number, or the text, in picture 0 of {source}?"
    yield row(source, 0, ability, text, truth, boxes=False)


def box_rows(source: str, ability: str, counts: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    for number, count in enumerate(counts):
        found = [
            {"bbox_2d": [100 * k + number, 50, 100 * k + 80, 200 + number], "label": "cup"}
            for k in range(count)
        ]
        text = FIGURE_8.format(label=f"cup (picture {number} of {source})")
        yield row(source, number, ability, text, str(found), boxes=True)


def published() -> dict[str, list[dict[str, Any]]]:
    rows = {name: list(plain_rows(name, ability)) for name, ability in (REASONING | READING).items()}
    for name in ("v3det", "object365"):
        rows[name] = list(box_rows(name, "cv_detection", (1, 2, 3, 2)))
    rows["d3"] = list(box_rows("d3", "cv_grounding", (1, 1)))
    return rows


class Obedient(ScriptedEngine):
    """Knows the answer to every question; is right in all rollouts, or in every other one."""

    def __init__(self, policy: Any, truths: dict[str, Sample], *, always: bool) -> None:
        super().__init__(policy.chat, ["never said"])
        self._truths = truths
        self._always = always

    async def generate(self, request: Request) -> Completion:
        *_, rollout, _ = request.key
        prompt = self._chat.tokenizer.decode(list(request.token_ids))
        (place,) = set(re.findall(r"picture \d+ of \w+", prompt))
        said = "I do not know."
        if self._always or rollout % 2 == 0:
            said = obedient(prompt, self._truths[place])
        return await ScriptedEngine(self._chat, [said]).generate(request)


def by_place(files: list[Path]) -> dict[str, Sample]:
    found = {}
    for file in files:
        for sample in read_samples(file):
            (place,) = set(re.findall(r"picture \d+ of \w+", sample.question))
            found[place] = sample
    return found


@pytest.fixture(scope="module")
def chain(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the whole chain: `data/orsta`, `curated`, `run`."""
    folder = tmp_path_factory.mktemp("vtriune")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, rows in published().items():
            file = parquet(folder / "published" / f"{name}.parquet", rows)
            ended = vtune(
                "data", "import", "vtriune", file, "--out", f"data/orsta/{name}.parquet", "--strict"
            )
            assert ended.code == 0, ended.err
        truths = by_place(sorted((folder / "data" / "orsta").glob("*.parquet")))

        def engine(policy: Any, *, apart: bool = False, **_: object) -> Obedient:
            # Only the engine for pass rates samples each row from its own seed (`apart`).
            return Obedient(policy, truths, always=not apart)

        draw_with(patch, engine)
        small = {"min_pixels": 3136, "max_pixels": 12544}
        recipe = load_recipe(find("orsta-47k", "data_recipes"), DataRecipe)
        given: dict[str, object] = {}
        for number, spec in enumerate(recipe.filters):
            if spec.filter == "category_tail":
                given[f"filters.{number}.at_least"] = 1
            if spec.filter == "pass_rate":
                more = {"model": tiny, "engine": "transformers", "dtype": "float32", "threads": 1}
                more |= {f"images.{key}": value for key, value in small.items()}
                given |= {f"filters.{number}.{key}": value for key, value in more.items()}
        ended = vtune("curate", "orsta-47k", "--out", "curated", "--json", *settings("data", **given))
        assert ended.code == 0, ended.err
        check_unchanged("data", "orsta-47k", folder / "curated" / "recipe.yaml")
        (folder / "curated.json").write_text(ended.out)
        given = {"model": tiny, "data": "[curated/samples.parquet]", "steps": 2, "prompts_per_step": 16}
        given |= {"group_size": 2, "rollout.engine": "transformers", "update.dtype": "float32"}
        given |= {"update.threads": 1} | {f"images.{key}": value for key, value in small.items()}
        ended = vtune("rl", "--recipe", "orsta-7b", "--out", "run", *settings("rl", **given))
        assert ended.code == 0, ended.err
        check_unchanged("rl", "orsta-7b", folder / "run" / "recipe.yaml")
    return folder


def sources() -> set[str]:
    return set(load_recipe(find("orsta-47k", "data_recipes"), DataRecipe).sources)


def test_no_source_is_lost_from_published_rows_to_training_data(chain: Path) -> None:
    """Except for what a rule may drop: pictures with one or several boxes beyond the ratio 1:2."""
    kept = [sample.source for sample in read_samples(chain / "curated" / "samples.parquet")]
    assert set(kept) == sources()
    assert len(sources()) == 18
    assert kept.count("puzzlevqa") == 4
    assert kept.count("d3") == 2


def test_an_obedient_policy_earns_the_full_reward_of_each_source(
    chain: Path, record_property: Record
) -> None:
    rows = {source: row for (_, source), row in numbers(chain / "run").items() if source != "all"}
    assert set(rows) == sources()
    files = sorted((chain / "run" / "trajectories").glob("*.parquet"))
    record_earned(
        record_property, "rl/orsta-7b, obedient", [t for file in files for t in read_trajectories(file)]
    )
    for source, row in rows.items():
        boxed = source in ("v3det", "object365", "d3")
        assert row["accuracy"] == pytest.approx(1.0), source
        assert row["reward"] == pytest.approx(1.1 if boxed else 1.0, abs=1e-6), source
        assert row["unscored"] == 0, source


def test_the_format_score_is_full_wherever_it_is_rewarded(chain: Path) -> None:
    ratios = {s.id: s.format_ratio for s in read_samples(chain / "curated" / "samples.parquet")}
    (first, *_) = sorted((chain / "run" / "trajectories").glob("*.parquet"))
    drawn = list(read_trajectories(first))
    paid = [t for t in drawn if ratios[t.sample_id] > 0]
    assert paid
    assert {t.reward.format for t in paid if t.reward is not None} == {1.0}


def test_the_recipe_trains_with_what_the_data_recipe_writes(chain: Path) -> None:
    funnel = json.loads((chain / "curated.json").read_text())
    assert funnel
    recipe = load_recipe(find("orsta-7b", "recipes.rl"), RLRecipe)
    for sample in read_samples(chain / "curated" / "samples.parquet"):
        assert sample.tools == ()
        assert sample.accuracy_ratio == recipe.reward.accuracy
        assert sample.format_ratio in (0.0, pytest.approx(recipe.reward.format))
