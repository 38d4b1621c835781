"""A data recipe: its sources, the filters that rows pass in order, and how the rest is mixed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from vtune.config import Uses
from vtune.curate.difficulty import Band, FirstPass
from vtune.curate.filters import FILTERS, Filter, FilterPart, Records
from vtune.curate.item import Selected
from vtune.judge.endpoint import JudgeEndpoint
from vtune.models.pictures import PixelBudget
from vtune.models.policy import Dtype
from vtune.models.served import PREFIX, is_served
from vtune.parts import OURS
from vtune.rollout.openai import Served
from vtune.rollout.prompts import PLAIN
from vtune.rollout.recipe import Rollout
from vtune.runs.agent.tools import ToolsRecipe
from vtune.runs.curate.rows import Source
from vtune.sandbox.recipe import SandboxRecipe
from vtune.schema.source_names import is_taken
from vtune.sections import Strict


def _switched(tools: object) -> object:
    """Expand `true` and `false` to the section that they stand for."""
    if isinstance(tools, bool):
        return ToolsRecipe() if tools else None
    return tools


SANDBOX = SandboxRecipe(isolation="auto", decode="confined", seconds=10.0, memory_mb=512)
"""Sandbox for filters that do not set one, as in the built-in recipes."""


class PassRate(Selected):
    """Drops what a model finds too easy or too hard, measured by rollouts."""

    model: str
    """Folder or hub name, or `openai:URL#model` with engine `openai`."""
    engine: Literal["transformers", "vllm", "openai"]
    seed: int = 0
    rollouts: int = Field(default=8, gt=0)
    """Rollouts per sample that is still undecided after the first pass (CodeV §9; V-Triune, appendix A)."""
    tools: Annotated[ToolsRecipe | None, BeforeValidator(_switched)] = None
    """Which of the samples' tools the rollouts may call: none (`false` or null), `python` (`true`), or also
    those of a section as in `vtune rl`."""
    first: FirstPass | None = None
    band: Band
    verifier_parm: Mapping[str, Any] = Field(default_factory=dict)
    """Verifier options for these rollouts, overriding those of the samples."""
    judge: JudgeEndpoint | None = None
    """Needed by samples with verifier `judge`; null if there are none."""
    images: PixelBudget
    rollout: Rollout
    sandbox: SandboxRecipe = SANDBOX
    dtype: Dtype
    threads: int = Field(gt=0)
    max_unscored: float = Field(default=0.01, ge=0, le=1)
    """The run stops if a larger share of the samples has a rollout that could not be scored."""
    openai: Served = Served()
    """Settings for a model behind an endpoint."""

    @model_validator(mode="after")
    def _engine_has_the_model(self) -> Self:
        if is_served(self.model) != (self.engine == "openai"):
            raise ValueError("a model `openai:URL#model` needs `engine: openai`, which takes no other model")
        return self


def _endpoint(folder: Path, url: str) -> dict[str, Any]:
    """A model at an endpoint, half of whose answers have to be right."""
    limits = {"max_turns": 1, "max_new_tokens": 64, "max_tokens": 2048, "max_batch": 4}
    return {
        "model": f"{PREFIX}{url}#policy",
        "engine": "openai",
        "openai": {"api_key_env": None},
        "rollouts": 2,
        "band": {"at_least": 0.5},
        "images": {"min_pixels": 56 * 56, "max_pixels": 112 * 112},
        "rollout": {"prompt": PLAIN, "temperature": 1.0, **limits},
        "dtype": "float32",
        "threads": 1,
    }


FILTERS.add(
    "pass_rate",
    FilterPart(
        PassRate,
        None,
        keeps={"ground_truth": "2"},
        drops={"ground_truth": "3"},
        example=_endpoint,
        says=lambda text: "<answer>2</answer>",
    ),
)


class Mix(Strict):
    """What happens to the rows that passed; all sources are spread evenly over the file."""

    caps: Mapping[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """Source -> the largest number of its rows to keep, chosen at random."""
    repeat: Mapping[str, Annotated[int, Field(gt=0)]] = Field(default_factory=dict)
    """Source -> how many times each of its rows appears; once if it is not listed."""


class DataRecipe(Strict):
    """What `vtune curate` does."""

    uses: Uses = ()
    """Files with the user's own parts."""
    records: Records
    """Whether the files hold samples or cold-start traces (trajectories)."""
    seed: int = 0
    """Seeds everything random except the sampling of rollouts."""
    sources: Mapping[str, Source | None] = Field(min_length=1)
    """Name -> its files; null omits a source."""
    filters: tuple[Filter, ...] = ()
    mix: Mix = Field(default_factory=Mix)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.used:
            raise ValueError("every source is null")
        for name, source in self.used.items():
            if source.rename and is_taken(name):
                raise ValueError(
                    f"sources.{name}: metrics use this name for a row of their own: give it another"
                )
            if self.records == "traces" and source.tools is not None:
                raise ValueError(f"sources.{name}.tools: the tools that a trace calls cannot be changed")
        for section in ("caps", "repeat"):
            if unknown := set(getattr(self.mix, section)) - set(self.sources):
                raise ValueError(f"mix.{section} names {', '.join(sorted(unknown))}, which is not a source")
        for number, spec in enumerate(self.filters):
            part = FILTERS[spec.filter]
            if part.how is None and spec.filter not in OURS["filter"]:
                raise ValueError(f"filters.{number}: `{spec.filter}` does not say how it looks at rows")
            if self.records not in part.looks_at:
                raise ValueError(f"filters.{number}: `{spec.filter}` does not apply to {self.records}")
        return self

    @property
    def used(self) -> dict[str, Source]:
        """The sources that are not omitted."""
        return {name: source for name, source in self.sources.items() if source is not None}

    @property
    def columns(self) -> list[str]:
        """A name for each filter, in order: its kind, numbered if a kind occurs more than once."""
        kinds = [spec.filter for spec in self.filters]
        counts = {kind: kinds.count(kind) for kind in kinds}
        return [
            kind if counts[kind] == 1 else f"{kind}_{kinds[: number + 1].count(kind)}"
            for number, kind in enumerate(kinds)
        ]
