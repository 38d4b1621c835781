"""A data recipe: sources, the filters that their rows go through in order, and how what is left is mixed."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from vtune.config import Strict, Uses
from vtune.curate.balance import Balance
from vtune.curate.boxes import BoxesPerCategory, BoxShare, CategoryTail, PlainLabels, SinglesToMultis
from vtune.curate.difficulty import Band, FirstPass
from vtune.curate.duplicates import Contamination, Duplicates
from vtune.curate.filters import FOR_TRACES, NOT_FOR_SAMPLES
from vtune.curate.item import Selected
from vtune.curate.judging import ExternalKnowledge, LabelCheck
from vtune.curate.language import English
from vtune.curate.own import Own
from vtune.curate.reasoning import AnswerLength, AnswerSymbols, NoGuessing
from vtune.curate.traces import ToolRounds, WholeTraces
from vtune.curate.verifiable import MathVerifiable, Verifiable
from vtune.judge.client import JudgeEndpoint
from vtune.models.pictures import PixelBudget
from vtune.models.policy import Dtype
from vtune.rollout.agent import Rollout
from vtune.runs.agent.engines import Kind
from vtune.runs.agent.sandbox import SandboxRecipe
from vtune.runs.agent.tools import ToolsRecipe
from vtune.runs.curate.rows import Source


def _switched(tools: object) -> object:
    """`true` and `false` as the section that they stand for."""
    if isinstance(tools, bool):
        return ToolsRecipe() if tools else None
    return tools


SANDBOX = SandboxRecipe(isolation="auto", decode="confined", seconds=10.0, memory_mb=512)
"""Of rollouts whose filter says nothing about it: that of the shipped recipes."""


class PassRate(Selected):
    """Drops what a model finds too easy or too hard, by rollouts of it."""

    filter: Literal["pass_rate"]
    model: str
    """Folder or hub name."""
    engine: Kind
    seed: int = 0
    rollouts: int = Field(default=8, gt=0)
    """Of each sample that is still undecided after the first pass (CodeV §9; V-Triune, appendix A)."""
    tools: Annotated[ToolsRecipe | None, BeforeValidator(_switched)] = None
    """What the rollouts may call of what their samples offer: `false` or null nothing, `true` `python`, a
    section as in `vtune rl` also what it says."""
    first: FirstPass | None = None
    band: Band
    verifier_parm: Mapping[str, Any] = Field(default_factory=dict)
    """Options of the verifier for these rollouts, over those of the samples."""
    judge: JudgeEndpoint | None = None
    """Asked by samples with verifier `judge`; null where there are none."""
    images: PixelBudget
    rollout: Rollout
    sandbox: SandboxRecipe = SANDBOX
    dtype: Dtype
    threads: int = Field(gt=0)
    max_unscored: float = Field(default=0.01, ge=0, le=1)
    """The run stops when a larger share of the samples has a rollout that nobody could score."""


Filter = Annotated[
    NoGuessing
    | AnswerSymbols
    | AnswerLength
    | BoxesPerCategory
    | BoxShare
    | PlainLabels
    | SinglesToMultis
    | CategoryTail
    | English
    | Verifiable
    | MathVerifiable
    | Balance
    | Duplicates
    | Contamination
    | ToolRounds
    | WholeTraces
    | Own
    | ExternalKnowledge
    | LabelCheck
    | PassRate,
    Field(discriminator="filter"),
]
"""A filter's section; `filter` says which."""


class Mix(Strict):
    """What becomes of the rows that passed; all sources are spread evenly through the file."""

    caps: Mapping[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """Source -> rows that it keeps at most, chosen at random."""
    repeat: Mapping[str, Annotated[int, Field(gt=0)]] = Field(default_factory=dict)
    """Source -> how often each of its rows comes; once where it is not named."""


class DataRecipe(Strict):
    """What `vtune curate` does."""

    uses: Uses = ()
    """Files with parts of the user's own."""
    records: Literal["samples", "traces"]
    """Whether the files hold samples or cold-start traces (trajectories)."""
    seed: int = 0
    """Decides whatever is left to chance, draws of rollouts aside."""
    sources: Mapping[str, Source | None] = Field(min_length=1)
    """Name -> its files; null leaves a source out."""
    filters: tuple[Filter, ...] = ()
    mix: Mix = Field(default_factory=Mix)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.used:
            raise ValueError("every source is null")
        for name, source in self.used.items():
            if self.records == "traces" and source.tools is not None:
                raise ValueError(f"sources.{name}.tools: what a trace has called cannot be changed")
        for section in ("caps", "repeat"):
            if unknown := set(getattr(self.mix, section)) - set(self.sources):
                raise ValueError(f"mix.{section} names {', '.join(sorted(unknown))}, which is no source")
        for number, spec in enumerate(self.filters):
            fits = type(spec) in FOR_TRACES if self.records == "traces" else type(spec) not in NOT_FOR_SAMPLES
            if not fits:
                raise ValueError(f"filters.{number}: `{spec.filter}` cannot look at {self.records}")
        return self

    @property
    def used(self) -> dict[str, Source]:
        """The sources that are not left out."""
        return {name: source for name, source in self.sources.items() if source is not None}

    @property
    def columns(self) -> list[str]:
        """A name for each filter, in order: its kind, numbered where a kind comes more than once."""
        kinds = [spec.name if isinstance(spec, Own) else spec.filter for spec in self.filters]
        counts = {kind: kinds.count(kind) for kind in kinds}
        return [
            kind if counts[kind] == 1 else f"{kind}_{kinds[: number + 1].count(kind)}"
            for number, kind in enumerate(kinds)
        ]
