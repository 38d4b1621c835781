"""Runs MEGA-Bench's metrics and parsers as shipped in lmms-eval on cases from a file; output is JSON.

    .venv-harness/bin/python tests/harness/upstream_mega.py CASES OUT

Runs in an environment that has lmms-eval but not vtune. Metrics that ask a model or the network, run a
program or need a corpus are left out: their files import packages that are not installed.
"""

import json
import logging
import sys
import types
from pathlib import Path
from typing import Any

FOLDER = "lmms_eval/tasks/megabench"
LEFT_OUT = (
    *("ascii_art_vlm_judge", "vlm_as_judge", "constrained_generation", "geo_proximity", "gleu"),
    *("latex_expr_equality", "nli_entailment", "program_judge", "sacrebleu_bleu", "symbolic_planning"),
)
"""Files of `metrics/scoring` that are left out."""
IN_BOXES = "xml_norm_point_in_bbox"


class Absent(types.ModuleType):
    """A stub for a file that is left out; everything imported from it is a dummy."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def scored(cases: list[tuple[str, Any, Any]]) -> list[float]:
    """The result of `MetricType.match` for each (metric, answer, truth)."""
    from metrics.metric_type import MetricType  # type: ignore[import-not-found]

    found = []
    for metric, answer, truth in cases:
        given = (
            {"bounding_boxes": truth} if metric == IN_BOXES else truth
        )  # this metric reads the task's context
        score = MetricType.from_string(metric).match(answer, given)
        found.append(float(score[0] if isinstance(score, tuple) else score))
    return found


def parsed(cases: list[tuple[str, str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Field -> answer for each (parser, reply, truths), as the evaluator reads them."""
    from metrics.response_parse_type import ResponseParseType  # type: ignore[import-not-found]

    found = []
    for name, reply, truths in cases:
        parser = ResponseParseType.from_string(name)
        if parser.is_single_field_parser():
            (field,) = truths
            found.append(parser.parse(reply, field, is_single_line_ans="\n" not in truths[field]))
        else:
            said = parser.parse(reply)
            found.append(said if isinstance(said, dict) and said else dict.fromkeys(truths, reply))
    return found


if __name__ == "__main__":
    cases, out = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    sys.path.insert(
        0, str(next(Path(place) / FOLDER for place in sys.path if (Path(place) / FOLDER).is_dir()))
    )
    for name in LEFT_OUT:
        sys.modules[f"metrics.scoring.{name}"] = Absent(f"metrics.scoring.{name}")
    asked = json.loads(Path(cases).read_text())
    Path(out).write_text(json.dumps({"scores": scored(asked["scores"]), "fields": parsed(asked["fields"])}))
