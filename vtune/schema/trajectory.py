"""What the policy did with one sample: every token, every call, every picture."""

from dataclasses import dataclass, field
from typing import Literal

from vtune.errors import OutOfRange
from vtune.schema.box import Box
from vtune.schema.message import Message, Picture
from vtune.schema.reward import Reward
from vtune.schema.verdict import SCALE, number

Status = Literal["ok", "error", "blocked", "timeout", "killed", "limit", "infra"]
"""How a tool call ended. `infra` is our failure, all others are the model's responsibility.

ok: completed. error: raised an exception. blocked: refused by the static scan. timeout: ran too long, state
kept. killed: the process had to be stopped or exited, state lost. limit: hit a limit of the sandbox
that the model could not know (memory, printed text, a busy machine), state kept. infra: the sandbox failed.
"""

StopReason = Literal["answer", "length", "turns", "context", "error"]
"""answer: the model ended its turn itself, or the environment ended the conversation. length: a turn reached
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
"""Red flags known to scoring (`vtune.reward.flags`); other services may have set others."""

Look = Literal["verified", "unverified", "illegible", "faked"]
"""verified: the returned picture shows the region. unverified: not well enough, or the region has no features
by which to recognise it. illegible: too few pixels. faked: it shows nothing of the region."""


@dataclass(frozen=True, slots=True)
class Crop:
    """A region that a call claims to show."""

    image: int
    """Index into the trajectory's images: the source picture of the region."""
    bbox: Box
    """xyxy in pixels of that picture."""
    shown: int | None = None
    """Index into the trajectory's images: the returned picture that shows the region, None if none does."""
    matrix: tuple[float, ...] | None = None
    """From pixels of the returned picture to pixels of the source picture. Six numbers
    (a, b, c, d, e, f): X = a x + b y + c, Y = d x + e y + f; or nine, the rows of a homography. None if
    the region fills the returned picture."""
    look: Look | None = None
    """What scoring found when it checked the claim against the pixels (`vtune.looks`); None if no picture
    shows the region, or it has not been checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call and its result."""

    tool: str
    arguments: str
    """As JSON; for `python`, {"code": …}."""
    status: Status
    error: str = ""
    output: str = ""
    images: tuple[int, ...] = ()
    """Pictures that it returned, as indices into the trajectory's images."""
    crops: tuple[Crop, ...] = ()
    seconds: float = 0.0
    span: tuple[int, int] = (0, 0)
    """Start and end (exclusive) of the call in `token_ids`."""
    flags: tuple[str, ...] = ()
    """Red flags that scoring found (CodeV §4.3), e.g. `whole_image`."""
    unseen: bool = False
    """Whether the conversation ended before the policy was shown the result: then it earns nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An environment's score for a trajectory, and the reason, short enough to read in a report."""

    score: float
    """In [0, 1]."""
    why: str

    def __post_init__(self) -> None:
        score = number(self.score)
        if not 0.0 <= score <= 1.0:  # also catches NaN
            raise OutOfRange(f"an outcome must be in [0, 1], got {score}", SCALE)
        if not isinstance(self.why, str):
            raise TypeError(f"the reason of an outcome is {self.why!r:.60}: write a text")
        object.__setattr__(self, "score", score)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One rollout. Token lists have one entry for each token of the whole conversation, shape (T,)."""

    sample_id: str
    source: str
    group: int = 0
    """Shared by the rollouts of one prompt in one step."""
    rollout: int = 0
    """Index of the rollout in its group."""
    policy_version: int = 0
    messages: tuple[Message, ...] = ()
    images: tuple[Picture, ...] = ()
    """The sample's images first, then those returned by calls."""
    calls: tuple[Call, ...] = ()
    token_ids: tuple[int, ...] = ()
    loss_mask: tuple[bool, ...] = ()
    """True only on tokens that the policy sampled."""
    logprobs: tuple[float | None, ...] = ()
    """Log-probability (nats) of each sampled token under the policy that sampled it; None elsewhere."""
    weight_versions: tuple[int | None, ...] = ()
    """Training step of the weights that sampled each token; None elsewhere, empty if unknown."""
    entropies: tuple[float | None, ...] = ()
    """Entropy (nats) of the distribution of each sampled token, at temperature 1; None elsewhere, empty if
    the engine does not report it."""
    answer: str | None = None
    """Content of the reply's only `<answer>`, None if there is not exactly one."""
    stop_reason: StopReason = "answer"
    reward: Reward | None = None
    tool_scores: tuple[float | None, ...] = ()
    """One per call; None = unscored."""
    advantage: float | None = None
    call_advantages: tuple[float | None, ...] = field(default=())
    sandbox: str = ""
    """Isolation under which its code ran: `namespaces`, `flat` or `unsafe`; empty if none was needed."""
    outcome: Outcome | None = None
    """The reward of its environment; None if it gives none."""
    needs_look: bool | None = None
    """Whether its question needs a look, according to scoring (`vtune.reward.evidence.needs_look`): if it
    does not, faithfulness of looks is undefined. None if not known."""

    @property
    def reply(self) -> str:
        """Everything that the policy wrote, turns joined by a newline."""
        return "\n".join(message.content for message in self.messages if message.role == "assistant")
