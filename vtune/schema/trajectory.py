"""What the policy did with one sample: every token, every call, every picture."""

from dataclasses import dataclass, field
from typing import Literal

from vtune.errors import OutOfRange
from vtune.schema.box import Box
from vtune.schema.message import Message, Picture
from vtune.schema.reward import Reward
from vtune.schema.verdict import SCALE

Status = Literal["ok", "error", "blocked", "timeout", "killed", "limit", "infra"]
"""How a tool call ended. `infra` is our failure, the others are the model's doing.

ok: ran to its end. error: raised. blocked: the static scan refused it. timeout: ran too long, state
kept. killed: the process had to be stopped or left by itself, state lost. limit: met a limit of the sandbox
that its writer could not know (memory, printed text, a busy machine), state kept. infra: the sandbox failed.
"""

StopReason = Literal["answer", "length", "turns", "context", "error"]
"""answer: the model ended its turn by itself, or its environment the conversation. length: a turn reached
its token limit. turns: no turn was left. context: no room was left. error: our failure, the trajectory is
never scored."""

Flag = Literal[
    "whole_image",
    "repeated_crop",
    "repeated_search",
    "scratchpad",
    "sandbox_error",
    "bad_call",
    "faked",
    "illegible",
    "everything",
]
"""A red flag that scoring knows (`vtune.reward.flags`); what another service has scored may have others."""

Look = Literal["verified", "unverified", "illegible", "faked"]
"""verified: the returned picture shows the region. unverified: it does not well enough, or the region has
nothing by which it could be known. illegible: too few pixels. faked: it shows nothing of the region."""


@dataclass(frozen=True, slots=True)
class Crop:
    """A region that a call claims to show."""

    image: int
    """Index into the trajectory's images: the picture that the region was taken from."""
    bbox: Box
    """xyxy in pixels of that picture."""
    shown: int | None = None
    """Index into the trajectory's images: the returned picture that shows the region, None if none does."""
    matrix: tuple[float, ...] | None = None
    """From pixels of the returned picture to pixels of the one that the region was taken from. Six numbers
    (a, b, c, d, e, f): X = a x + b y + c, Y = d x + e y + f; or nine, the rows of a homography. None where
    the region fills the returned picture."""
    look: Look | None = None
    """What scoring found when it held the claim against the pixels (`vtune.looks`); None where no picture
    shows the region, or it has not been looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call and what came back."""

    tool: str
    arguments: str
    """As JSON; for `python`, {"code": …}."""
    status: Status
    error: str = ""
    output: str = ""
    images: tuple[int, ...] = ()
    """Pictures that it returned: indices into the trajectory's images."""
    crops: tuple[Crop, ...] = ()
    seconds: float = 0.0
    span: tuple[int, int] = (0, 0)
    """First and last+1 token of the call in `token_ids`."""
    flags: tuple[str, ...] = ()
    """Red flags that scoring found (CodeV §4.3), e.g. `whole_image`."""
    unseen: bool = False
    """Whether the conversation ended before the policy was shown what came back: then it earns nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an environment gives for a trajectory, and its reason, short enough to read in a report."""

    score: float
    """In [0, 1]."""
    why: str

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:  # also catches NaN
            raise OutOfRange(f"an outcome must be in [0, 1], got {self.score}", SCALE)
        object.__setattr__(self, "score", float(self.score))  # files take no number of numpy or torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One rollout. Token lists have one entry for each token of the whole conversation, shape (T,)."""

    sample_id: str
    source: str
    group: int = 0
    """Rollouts of one prompt in one step share it."""
    rollout: int = 0
    """Number of the rollout in its group."""
    policy_version: int = 0
    messages: tuple[Message, ...] = ()
    images: tuple[Picture, ...] = ()
    """The sample's images first, then what calls returned."""
    calls: tuple[Call, ...] = ()
    token_ids: tuple[int, ...] = ()
    loss_mask: tuple[bool, ...] = ()
    """True only on tokens that the policy sampled."""
    logprobs: tuple[float | None, ...] = ()
    """Log-probability (nats) of each sampled token under the policy that drew it; None elsewhere."""
    weight_versions: tuple[int | None, ...] = ()
    """Training steps behind the weights that drew each sampled token; None elsewhere, empty if unknown."""
    entropies: tuple[float | None, ...] = ()
    """Entropy (nats) of what each sampled token was drawn from, at temperature 1; None elsewhere, empty where
    the engine does not say."""
    answer: str | None = None
    """Content of the reply's only `<answer>`, None where there is not exactly one."""
    stop_reason: StopReason = "answer"
    reward: Reward | None = None
    tool_scores: tuple[float | None, ...] = ()
    """One per call; None = unscored."""
    advantage: float | None = None
    call_advantages: tuple[float | None, ...] = field(default=())
    sandbox: str = ""
    """Protection under which its code ran: `namespaces`, `flat` or `unsafe`; empty where none was needed."""
    outcome: Outcome | None = None
    """The reward of its environment; None where that gives none."""
    needs_look: bool | None = None
    """Whether its question asks for a look, as scoring has it (`vtune.reward.evidence.needs_look`): where it
    does not, there is no saying whether looks are faithful. None where that is not known."""

    @property
    def reply(self) -> str:
        """Everything that the policy wrote, turns joined by a newline."""
        return "\n".join(message.content for message in self.messages if message.role == "assistant")
