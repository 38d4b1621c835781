"""Runs the scorers of VLMEvalKit, lmms-eval and inspect on output of `vtune export --as`; per item, as JSON.

    .venv-harness/bin/python tests/harness/upstream.py HARNESS JOBS OUT

Runs in an environment that has the harnesses but not vtune. Their files are imported one by one, as other
dependencies of the packages (models, a hundred other benchmarks) are not installed. If their sources are on
PYTHONPATH, these are used.
"""

import json
import os
import random
import string
import sys
import tempfile
import types
from pathlib import Path
from typing import Any


def bare(name: str) -> None:
    """A package whose `__init__` is not executed."""
    package = types.ModuleType(name)
    path = name.replace(".", "/")
    package.__path__ = [str(next(Path(place) / path for place in sys.path if (Path(place) / path).is_dir()))]
    sys.modules[name] = package


class Reader:
    """A model that should extract the answer from a reply, and returns the reply itself."""

    def generate(self, prompt: str, **_: Any) -> str:
        """The text after the reply's mark in upstream's prompt."""
        return prompt.rpartition("Model respone: ")[2].removesuffix("Extracted answer:")


def vlmevalkit(suite: str, folder: Path, data: Path) -> dict[str, float]:
    """Scores of VLMEvalKit, by index."""
    if "vlmeval" not in sys.modules:
        bare("vlmeval")
        bare("vlmeval.dataset")
    from vlmeval.dataset import image_mcq, image_vqa
    from vlmeval.smp import load

    (file,) = folder.glob("*.xlsx")
    if suite == "mathvista":
        return mathvista_of_vlmevalkit(load(str(file)))
    kinds: dict[str, Any] = {
        "vstar": image_mcq.ImageMCQDataset,
        "hrbench-4k": image_mcq.HRBenchDataset,
        "mmmu": image_mcq.MMMUDataset,
        "mme-realworld-lite": image_mcq.MMERealWorld,
        "vlmblind": image_mcq.VLMBlind,
        "countbench": image_vqa.CountBenchQA,
    }
    dataset = object.__new__(kinds[suite])  # skips the download in its constructor
    dataset.dataset_name = file.stem.rsplit("_", 2 if suite != "mmmu" else 3)[-1]
    dataset.dataset_name = "MMMU_DEV_VAL" if suite == "mmmu" else dataset.dataset_name
    dataset.data = load(str(data))
    if suite in ("vlmblind", "countbench"):  # these return only totals, so each row becomes a separate table
        return one_by_one(suite, dataset, load(str(file)), image_mcq, image_vqa)
    dataset.evaluate(str(file), model="exact_matching", nproc=1)
    name = "_score" if suite == "mme-realworld-lite" else "_exact_matching_result"
    (result,) = [one for one in folder.iterdir() if one.stem.endswith(name) and one.suffix == ".xlsx"]
    column = "score" if suite == "mme-realworld-lite" else "hit"
    table = load(str(result))
    return {str(index): float(hit) for index, hit in zip(table["index"], table[column], strict=True)}


def one_by_one(suite: str, dataset: Any, table: Any, *modules: Any) -> dict[str, float]:
    """Score each row as a separate in-memory table: a file with one row would be read as numbers."""
    found = {}
    kept = [(module, module.load, module.dump) for module in modules]
    for number in range(len(table)):
        one = table.iloc[[number]]
        for module, *_ in kept:
            module.load, module.dump = (lambda _, one=one: one), (lambda *_: None)
        score = dataset.evaluate("one.xlsx")
        share = score["accuracy"] / 100 if suite == "countbench" else float(score.iloc[0, 0])
        found[str(one.iloc[0]["index"])] = share
    for module, load, dump in kept:
        module.load, module.dump = load, dump
    return found


def mathvista_of_vlmevalkit(table: Any) -> dict[str, float]:
    """VLMEvalKit's rules, with a model that returns the reply itself, and then without a model."""
    from vlmeval.dataset.utils.mathvista import MathVista_auxeval, post_check

    found = {}
    reader = Reader()
    for number in range(len(table)):
        line = table.iloc[number]
        known = MathVista_auxeval(reader, line)
        found[str(line["index"])] = float(post_check({**line, **known}, prefetch=False) is True)
    return found


def lmms_eval(suite: str, folder: Path, data: Path) -> dict[str, float]:
    """Scores of lmms-eval, by number of the question."""
    (file,) = folder.glob("*/*_samples_*.jsonl")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    score = SCORES[suite]
    return {
        str(row["doc"].get("index", row["doc_id"])): score(row["doc"], row["filtered_resps"]) for row in rows
    }


def _vstar(doc: dict[str, Any], said: str) -> float:
    from lmms_eval.tasks.vstar_bench.utils import vstar_process_results as process

    asked = {"text": doc["question"], "label": doc["answer"], "category": doc["category"], "question_id": 0}
    return float(process(asked, [said])["vstar_overall_acc"]["score"])


def _hrbench(doc: dict[str, Any], said: str) -> float:
    from lmms_eval.tasks.hrbench import utils

    def no_judge(payload: Any) -> Any:
        raise ConnectionError("there is no judge")

    utils.hrbench_evaluator._post_request = no_judge
    options = dict(zip(string.ascii_uppercase, doc["choices"], strict=False))
    kept = {key: doc[key] for key in ("question", "answer", "category", "cycle_category", "index")}
    try:
        return float(utils.hrbench_process_results(kept | options, [said])["average"]["gpt_score"])
    except (KeyError, AttributeError):
        return 0.0  # it raises if the rules find nothing and no judge answers


def _realworld(doc: dict[str, Any], said: str) -> float:
    from lmms_eval.tasks.mme_realworld import utils

    result = utils.mme_realworld_process_results(doc, [said])["mme_realworld_score"]
    return float(utils.mme_realworld_aggregate_results([result]))


def _mmmu(doc: dict[str, Any], said: str) -> float:
    from lmms_eval.tasks.mmmu import utils

    asked = {
        "id": "validation_Art_1",
        "question_type": "multiple-choice" if doc["choices"] else "open",
        "options": str(doc["choices"]),
        "answer": doc["answer"] if doc["choices"] else doc["truths"],
    }
    exact = utils.mmmu_process_results(asked, [said])["mmmu_acc"]
    return float(utils.evaluate_mmmu([exact])[1]["acc"])


def _blind(doc: dict[str, Any], said: str) -> float:
    from lmms_eval.tasks.vlmsareblind.utils import vlmsareblind_process_results as process

    return float(process({"task": doc["task"], "groundtruth": doc["answer"]}, [said])["accuracy"])


def _count(doc: dict[str, Any], said: str) -> float:
    from lmms_eval.tasks.countbench.utils import countbench_process_results as process

    return float(process({"question": doc["question"], "number": doc["answer"]}, [said])["acc"])


def _mathvista(doc: dict[str, Any], said: str) -> float:
    from lmms_eval.tasks.mathvista import utils

    # The model returns the reply itself. Precisions are whole numbers here: with the 1.0 of the published
    # data upstream rounds nothing, and no float answer is right.
    utils.mathvista_evaluator.get_chat_response = lambda *_, **__: said.strip()
    asked = {key: doc.get(key) for key in ("answer_type", "query", "precision")}
    kind = "multi_choice" if doc["choices"] else "free_form"
    truth = doc["choices"][string.ascii_uppercase.index(doc["answer"])] if doc["choices"] else doc["answer"]
    asked |= {"question_type": kind, "choices": doc["choices"], "answer": truth, "pid": doc["id"]}
    return float(
        utils.mathvista_process_results(asked | {"metadata": {}}, [said])["submission"]["true_false"]
    )


SCORES = {
    "vstar": _vstar,
    "hrbench-4k": _hrbench,
    "mme-realworld-lite": _realworld,
    "mmmu": _mmmu,
    "vlmblind": _blind,
    "countbench": _count,
    "mathvista": _mathvista,
}


def inspect(suite: str, folder: Path, data: Path) -> dict[str, float]:
    """Scores by index, as inspect reads them from the log."""
    from inspect_ai.log import read_eval_log

    (file,) = folder.glob("*.eval")
    log = read_eval_log(str(file))
    assert log.status == "success"
    (scorer,) = log.results.scores
    found = {str(one.metadata["index"]): float(one.scores[scorer.name].value) for one in log.samples}
    assert abs(sum(found.values()) / len(found) - scorer.metrics["score"].value) < 1e-9
    return found


if __name__ == "__main__":
    harness, jobs, out = sys.argv[1:]
    os.environ["LMUData"] = tempfile.mkdtemp()  # noqa: SIM112 - its own spelling
    os.environ["OPENAI_API_KEY"] = "none"
    random.choice = lambda options: None  # a randomly chosen answer counts as no answer here
    score = {"vlmevalkit": vlmevalkit, "lmms-eval": lmms_eval, "inspect": inspect}[harness]
    found = {
        suite: score(suite, Path(folder), Path(data))
        for suite, folder, data in json.loads(Path(jobs).read_text())
    }
    Path(out).write_text(json.dumps(found))
