"""The one table of parts: everything that a recipe, a suite or a row of data names.

A part is one file that says everything about itself, and adds itself to the table of its kind under its name;
`OURS` lists the module of each of ours, which `vtune.registry` imports when the part is first requested. A
user's own part comes from a file that a recipe names under `uses` (`vtune.uses`), and adds itself in the same
way.

To add one of ours: write its file, which ends with `….add("name", …)`, and append its name to its
kind in `OURS` (`tests/README.md`, "Contributing").
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Kind = Literal[
    "verifier",
    "format",
    "scorer",
    "protocol",
    "prompt",
    "tool",
    "environment",
    "filter",
    "evidence",
    "reward",
    "family",
    "loss",
]

WORDS: Mapping[str, str] = MappingProxyType(
    {
        "format": "data format",
        "prompt": "prompt style",
        "evidence": "evidence judge",
        "reward": "part of the reward",
        "family": "model family",
    }
)
"""What messages call a part of a kind, if that differs from the kind itself."""


def _listed(package: str, parts: str) -> Mapping[str, str]:
    """Name -> module in a package, for entries `name` (if the module has that name) or `module:name`."""
    pairs = ((part.rpartition(":")[2], part.partition(":")[0]) for part in parts.split())
    return MappingProxyType({name: f"{package}.{module}" for name, module in pairs})


OURS: Mapping[Kind, Mapping[str, str]] = MappingProxyType(
    {
        "verifier": _listed(
            "vtune.verifiers",
            "choice exact math counting ocr detection grounding point_in_box judge environment_reward "
            "reading mega_bench",
        ),
        "tool": _listed(
            "vtune.tools",
            "python zoom:image_zoom_in_tool text_search:text_search_tool image_search:image_search_tool",
        ),
        "environment": _listed("vtune.environments", "tools"),
        "format": _listed(
            "vtune.data.formats",
            "samples vtriune verl deepeyes codev questions:thinklite thyme conversations questions:easyr1 "
            "search:mars search:mmsearch coco coco:v3det coco:objects365 benchmarks:vstar benchmarks:hrbench "
            "benchmarks:mme_realworld benchmarks:treebench benchmarks:mmmu benchmarks:mmmu_pro "
            "benchmarks:mmmu_pro_vision benchmarks:countbench benchmarks:vlmblind "
            "benchmarks:mathvista benchmarks:mathverse benchmarks:mathvision "
            "benchmarks:mathvision_mini benchmarks:charxiv_reasoning benchmarks:charxiv_descriptive "
            "detection_sets:coco_set detection_sets:ovdeval screens:screenspot_pro expressions:refcoco "
            "expressions:refcoco_tsv questions:visual_probe ocrbench:ocrbench_v2 "
            "megabench:mega_bench search_sets:browsecomp_vl search_sets:mmsearch_plus mm_eval hub:hf",
        ),
        "scorer": _listed(
            "vtune.metrics",
            "benchmarks:mean benchmarks:categories benchmarks:hrbench benchmarks:sources levels levels:tasks "
            "facets attempted detection_scores:coco detection_scores:ovdeval ocrbench:ocrbench_v2 "
            "ocrbench:ocrbench_v2_weighted megabench:mega_bench",
        ),
        "protocol": _listed(
            "vtune.protocols", "vtune official vlmevalkit lmms_eval:lmms-eval evalscope mars paper"
        ),
        "filter": MappingProxyType(
            {
                **_listed(
                    "vtune.curate",
                    "reasoning:no_guessing reasoning:answer_symbols reasoning:answer_length "
                    "boxes:boxes_per_category boxes:box_share boxes:plain_labels boxes:singles_to_multis "
                    "boxes:category_tail language:english verifiable verifiable:math_verifiable balance "
                    "duplicates traces:tool_rounds traces:complete_traces "
                    "judging:external_knowledge judging:label_check",
                ),
                **_listed("vtune.runs.curate", "contamination recipe:pass_rate labels"),
            }
        ),
        # The first two are the default of a recipe without `judges`: add new ones after them.
        "evidence": _listed(
            "vtune.reward", "evidence_boxes:boxes evidence_model:model evidence_passages:passages"
        ),
        "reward": _listed("vtune.reward", "answer:accuracy format evidence:tool consistency"),
        "prompt": _listed("vtune.rollout", "prompts:codev prompts:plain prompts:tools prompts:pool"),
        "family": _listed("vtune.models.families", "qwen2_5_vl qwen3_vl"),
        "loss": _listed("vtune.update.losses", "grpo gspo sapo cispo"),
    }
)
"""Kind -> name -> the module that adds it."""
