"""A complete suite: what is asked, how it is scored, and the agent that answers.

A suite's file is small. It names an agent (`recipes/agents`, or the user's file) and a protocol; reading it
fills in the settings of both. The `suite.yaml` that an evaluation writes has all of them and suffices to
repeat the evaluation.
"""

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from vtune.config import Uses, find, load_recipe, read_values
from vtune.data.formats.table import FORMATS, plain_name
from vtune.errors import DataError, RecipeError
from vtune.metrics.benchmarks import ScorerName
from vtune.models.pictures import PixelBudget
from vtune.models.policy import Dtype
from vtune.protocols import PROTOCOLS
from vtune.protocols import vtune as ours
from vtune.protocols.protocol import wrong_kind
from vtune.reward.recipe import RewardRecipe
from vtune.rollout.openai import Served
from vtune.rollout.recipe import Rollout
from vtune.runs.agent.tools import ToolsRecipe
from vtune.runs.evaluate.judged import Judged
from vtune.runs.evaluate.places import located
from vtune.runs.evaluate.questions import AnswerIn, Source, as_today
from vtune.runs.evaluate.revisions import revisions
from vtune.sandbox.recipe import SandboxRecipe
from vtune.sections import Strict
from vtune.tools import ToolName
from vtune.tools.hosts import BlockedHost

AGENTS = "recipes.agents"
"""The package that contains the agents."""


class AgentRecipe(Strict):
    """Who answers: its tools, turns, prompt, pixels and decoding, and how its looks are audited."""

    uses: Uses = ()
    """Files with the user's own parts."""
    offers: tuple[ToolName, ...] | None
    """Tools that every question offers, in the prompt set by `rollout` (see `vtune.data.offer`); null: those
    named in the data, which published benchmarks do not do."""
    answer_in: AnswerIn | None
    """Where the answer is; null: as the samples say."""
    images: PixelBudget
    call_images: Literal["shown", "black"]
    """`black`: pictures from tools are blackened before the policy sees them, to prove that they are used."""
    rollout: Rollout
    sandbox: SandboxRecipe
    tools: ToolsRecipe | None = None
    """How the tools that questions offer besides `python` run; null: none of them."""
    reward: RewardRecipe
    """How looks are audited, and what the samples' verifiers need."""
    dtype: Dtype
    threads: int = Field(gt=0)
    openai: Served = Served()
    """Settings for a model behind an endpoint."""

    @model_validator(mode="after")
    def _draws_nothing_again(self) -> Self:
        if self.reward.counterfactual is not None:
            raise ValueError(
                "`reward.counterfactual` is for training only; for finished rollouts, use `vtune "
                "faithfulness --counterfactual`"
            )
        return self


class Published(Strict):
    """What is known about the data as published."""

    name: str | None = None
    """The built-in suite for this benchmark, by which papers' numbers are found; a copy keeps it while it
    uses the same data. Null: a benchmark without such numbers, or a custom one."""
    rows: int | None = Field(default=None, gt=0)
    """Number of questions; an evaluation with fewer is rejected (`check_complete`). Null: any number."""
    licence: str | None = None
    """As stated by the dataset card or the publisher; null: see `licence_why`."""
    licence_why: Annotated[str | None, Field(exclude_if=lambda why: why is None)] = None
    """Why `licence` is null."""
    md5: tuple[str, ...] | None = None
    """MD5 of its single file, in hexadecimal, for each accepted version; null accepts any."""
    revision: Annotated[str | None, Field(exclude_if=lambda revision: revision is None)] = None
    """Commit on the hub, or its first digits; data that `hf download --local-dir` recorded at another commit
    are rejected. Null accepts any, and results say which it was. Data without such records have no known
    revision.
    """


class EvalSuite(Source, AgentRecipe, Judged):
    """A benchmark: its data, and every setting that its score depends on."""

    blocked_hosts: tuple[BlockedHost, ...] = ()
    """Hosts with the benchmark's own pages: tools that search the web neither show nor read them."""
    agent: str | None = None
    """Name or path of the agent that the settings were copied from; null in files older than agents."""
    published: Published = Published()
    scorer: ScorerName
    """The rule that turns right and wrong answers into a score; the protocol's rule if it has one."""
    seed: int
    rollouts: int = Field(gt=0)
    """Rollouts per sample; the score is the mean over all."""
    offers: tuple[ToolName, ...] | None = None
    answer_in: AnswerIn | None = None

    decides: ClassVar[tuple[str, ...]] = ("uses", "agent", "protocol")

    @classmethod
    def completed(cls, values: dict[str, Any], chosen: Collection[str]) -> dict[str, Any]:
        """The values of a suite's file, completed with those of its agent and protocol.

        Raises:
            RecipeError: If the agent or the protocol does not exist, or has no rule for the suite; or if the
                suite sets `rollout` but only some of the agent's other settings.
        """
        values = as_today(values)
        whole = "rollout" in values
        if whole and "agent" in values and "agent" not in chosen:
            _check_whole(values)
        if not whole or "agent" in chosen:
            values = _with_agent(values, named="agent" in chosen)
        if not whole:
            values = located(values)
        return _with_protocol(values, asked="protocol" in chosen)

    @model_validator(mode="after")
    def _says_how_options_are_put(self) -> Self:
        # Without a kind it is not an established benchmark, so its scores need not be comparable.
        if self.kind is not None and "choices" not in self.model_fields_set:
            raise ValueError(
                f"questions of `kind: {self.kind}` may have options: write `choices: {{order: "
                f"official}}`, or `choices: null` where they have none, or are asked as the data word "
                "them"
            )
        return self

    @model_validator(mode="after")
    def _says_what_it_offers(self) -> Self:
        if not FORMATS[self.format].offers_tools and self.offers is None:
            raise ValueError(
                f"rows of the format `{self.format}` name no tools: write `offers: [python]`, or [] for none"
            )
        return self


def _check_whole(values: Mapping[str, Any]) -> None:
    """Check that a suite with its own `rollout`, as an evaluation writes it, has all settings of an agent."""
    fields = EvalSuite.model_fields
    missing = [key for key in AgentRecipe.model_fields if fields[key].is_required() and key not in values]
    if missing:
        raise RecipeError(
            f"the suite has a `rollout` of its own, but not {', '.join(missing)}: it must give all of "
            "an agent's settings itself, or leave `rollout` to its agent",
            fix="take `rollout` out, and set single keys with --set rollout.…; or name an agent of your own, "
            f"from `vtune recipes copy agent/{values['agent']} mine.yaml`",
        )


def _with_agent(values: dict[str, Any], *, named: bool) -> dict[str, Any]:
    """A suite with the settings of its agent.

    Our own samples and search agents' rows name the tools they offer, and may say where their answer is; only
    an agent requested by name overrides both. If such samples do not say where the answer is, the place in
    the agent's prompt applies.

    Args:
        values: The suite's values. Its own settings take precedence unless the agent was requested by name.
        named: Whether it was.
    """
    name = values.get("agent")
    if not isinstance(name, str):
        raise RecipeError(
            "the suite names no agent", fix="write `agent: codev`, or all settings of one into the suite"
        )
    path = find(name, AGENTS)
    agent = load_recipe(path, AgentRecipe)
    settings: dict[str, Any] = {**read_values(path), "uses": list(agent.uses)}
    layout = FORMATS.get(str(values.get("format")))
    if not named and layout is not None and layout.offers_tools:
        place = settings["answer_in"]
        settings |= {"offers": None, "answer_in": None}
        settings |= {} if place in (None, "tag") else {"answer_default": place}  # `tag` is the default anyway
    uses = [*settings.pop("uses"), *(values.get("uses") or [])]
    own = {key: value for key, value in values.items() if not (named and key in settings)}
    return settings | own | ({"uses": uses} if uses else {})


def _with_protocol(values: dict[str, Any], *, asked: bool) -> dict[str, Any]:
    """A suite with its protocol's settings: how multiple choice is presented and read, and the scorer.

    Args:
        values: The suite's values.
        asked: Whether the protocol was requested by name.
    """
    name = values.get("protocol", ours.NAME)
    if name not in PROTOCOLS:
        return values  # validation reports this
    rule = PROTOCOLS[name].rule(values.get("kind"))
    if rule is None:
        raise wrong_kind(name, values.get("kind"))
    choices = values.get("choices")
    if isinstance(choices, dict):
        if rule.ask is not None:
            choices = {key: value for key, value in choices.items() if key not in _OF_SUITES}
        else:
            # A suite written under a protocol with its own wording has null for both.
            own = {key: value for key, value in choices.items() if not (asked and value is None)}
            choices = dict(_OF_SUITES) | own
        values = values | {"choices": choices}
    if rule.scorer is not None and (asked or "rollout" not in values or name != ours.NAME):
        values = values | {"scorer": rule.scorer}
    return values


_OF_SUITES = {"template": ours.TEMPLATE, "letter_rule": ours.LETTER_RULE}
"""A suite's default settings for multiple choice, if its protocol leaves them to it."""


def check_published(suite: EvalSuite) -> None:
    """Check that data are the published ones, if the suite has their checksum or revision.

    Raises:
        DataError: If they differ; names both.
    """
    _check_revision(suite)
    for path in map(Path, suite.data):
        if suite.published.md5 is None or not path.is_file():
            continue
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "md5").hexdigest()
        if found not in suite.published.md5:
            raise DataError(
                f"its MD5 is {found}, and {' or '.join(suite.published.md5)} as published",
                where=str(path),
                fix=f"{suite.data_from}; --set published.md5=null accepts the file as it is",
            )


def _check_revision(suite: EvalSuite) -> None:
    wanted = suite.published.revision
    if wanted is None:
        return
    found = revisions(suite.data)
    for name in suite.data:
        commits = found.get(name, [])
        if not all(commit.startswith(wanted) for commit in commits):
            raise DataError(
                f"it is at revision {' and '.join(commits)}, but the suite wants {wanted}",
                where=name,
                fix=f"download it with --revision {wanted}; --set published.revision=null accepts any",
            )


def check_complete(suite: EvalSuite, found: int) -> None:
    """Check that data are not only part of what is published, e.g. from an interrupted download.

    If the file's checksum is known, it decides: the count is then a paper's, which may cover more than the
    file.

    Args:
        suite: The suite, all of which is to be evaluated.
        found: Number of questions found.

    Raises:
        DataError: If there are fewer than the suite says; names both numbers.
    """
    rows = suite.published.rows
    summed = suite.published.md5 is not None and all(map(Path.is_file, map(Path, suite.data)))
    if rows is None or found >= rows or summed or FORMATS[plain_name(suite.format)].leaves_out:
        return
    raise DataError(
        f"there are {found} questions, but {rows} as published",
        where=", ".join(suite.data),
        fix=f"{suite.data_from}; --set published.rows=null accepts them as they are, --limit takes a part",
    )


def begun(folder: Path) -> bool:
    """Whether a folder holds an evaluation, finished or not."""
    return (folder / "suite.yaml").exists()
