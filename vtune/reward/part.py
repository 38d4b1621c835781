"""What a part of the reward is: a score with its reason, weighted by the recipe; and their table."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import Field

from vtune.errors import RecipeError, RunFailed, ServiceError, VtuneError
from vtune.judge.completions import NoReply
from vtune.registry import Parts, first_line
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict
from vtune.sections import Open, Strict
from vtune.uses import awaited, defined, given, ill_made
from vtune.verifiers.verifying import Verifying

if TYPE_CHECKING:
    from vtune.reward.evidence import Judges
    from vtune.reward.recipe import RewardRecipe


BOUNDS = "correct the score; or give its bounds in RewardPart, e.g. low=-0.5, high=1.0"
"""The next step if a score is outside the range that its part declares."""


@dataclass(frozen=True, slots=True)
class Unscored:
    """A part that could not be scored, and why."""

    why: str
    again: bool = False
    """A worker or a judge failed: a retry may score it. The input is not to blame."""
    silent: bool = False
    """The model that should have judged it gave no reply (`NoReply`)."""
    fix: str = ""
    """The remedy, if one is known."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What is scored: a trajectory, and everything known about it so far."""

    sample: Sample
    trajectory: Trajectory
    """With the looks of its crops and the red flags of its calls."""
    recipe: "RewardRecipe"
    verifying: Verifying
    judges: "Judges"
    calls: Sequence[Verdict | Unscored] = ()
    """What each call showed."""
    found: Mapping[str, Verdict | Unscored] = field(default_factory=dict)
    """The parts scored before this one, in the order of the table."""


class PartSection(Strict):
    """The recipe section of a user's own part, under its name in `reward.parts`."""

    weight: float = Field(ge=0, le=1)
    """Its score is multiplied by this in the total; 0: it is scored and recorded, but has no effect."""


@dataclass(frozen=True, slots=True)
class RewardPart:
    """A part of the reward."""

    score: Callable[[Any, Scene], Awaitable[Verdict | Unscored]]
    """(its section of the recipe, the scene) -> its score with the reason; must be deterministic.

    A ServiceError or a DataError leaves it unscored, with that reason. Never raise one because of what the
    policy wrote: unscored trajectories are left out of training, so a nonsensical reply must get the lowest
    score instead.
    """
    section: type[PartSection] = PartSection
    """Its recipe section; a part with a column uses `PartSection` if its setting is a bare weight."""
    low: float = 0.0
    """Lowest possible score: -1 or higher."""
    high: float = 1.0
    """Highest possible score."""
    check_sample: Callable[[Any, Sample], None] | None = None
    """(section, sample) -> None; raises DataError before a run if the sample lacks something it needs."""
    column: bool = False
    """Whether recipes have a key and records a column with its name, as for the parts from papers; other
    parts have a section in `reward.parts`, and are stored in `own` of a record."""
    example: Mapping[str, Any] = field(default_factory=dict)
    """Settings besides the weight, used to test it."""
    replies: tuple[str, ...] = ()
    """Replies used to test it, besides a right, a wrong and an empty one."""
    says: Callable[[str], str] | None = None
    """The reply of the model of `reward.judge`, in tests, to a question with this text; None: no model."""


def unscored(error: VtuneError) -> Unscored:
    """The Unscored for an error; a model that gave no reply is named, too."""
    silent = isinstance(error, NoReply)
    why = f"{error.what} ({error.where})" if silent and error.where else error.what
    return Unscored(why, again=isinstance(error, ServiceError), silent=silent, fix=error.fix)


REWARDS: Parts[RewardPart] = Parts(
    "reward",
    lambda part: first_line(part.score),
    RewardPart,
    calls=("async score(section, scene) -> Verdict", "check_sample(section, sample) -> None"),
)
"""Name -> part of the reward."""


class OwnParts(Open):
    """Reward parts without a separate recipe key, e.g. those from files under `uses`."""

    @classmethod
    def sections(cls) -> Mapping[str, type[Strict]]:
        """Name -> section."""
        return {name: part.section for name, part in REWARDS.items() if not part.column}


def asked_for(recipe: "RewardRecipe") -> dict[str, Any]:
    """Name -> the recipe's setting, for the parts that it uses; our own come first.

    For a part with a column it is the recipe's key with that name: a weight, or a section.
    """
    ours = {name: getattr(recipe, name) for name, part in REWARDS.items() if has_key(name, part, recipe)}
    return {name: said for name, said in ours.items() if said is not None} | recipe.parts.given


def has_key(name: str, part: RewardPart, recipe: "RewardRecipe") -> bool:
    """Whether recipes have a key with its name.

    Raises:
        RecipeError: If there is no such key although the part declares one.
    """
    if part.column and name not in type(recipe).model_fields:
        raise RecipeError(
            f"the reward part `{name}` sets `column`, but recipes have no key of its name",
            fix="leave `column` out: recipes name it under `reward.parts`",
        )
    return part.column


async def scored(name: str, section: Any, scene: Scene) -> Verdict | Unscored:
    """The score of a part, or why it has none.

    Raises:
        BrokenPart: If a user's own part returns no score, or one outside its declared range.
    """
    part = REWARDS[name]
    try:
        verdict: Verdict | Unscored = await awaited((REWARDS.kind, name), part.score, section, scene)
    except RunFailed:
        raise  # a user's own part is broken: not a reason to leave just this trajectory unscored
    except VtuneError as error:
        return unscored(error)
    if isinstance(verdict, Unscored):
        return verdict
    given(verdict, Verdict, REWARDS.kind, name, part.score)
    if not part.low <= verdict.score <= part.high:
        what = f"it scores {verdict.score:.3g}, outside of [{part.low:g}, {part.high:g}]"
        raise ill_made((REWARDS.kind, name), ValueError(what), BOUNDS, defined(part.score))
    return verdict
