"""What a policy interacts with: our tools, or a user's own world."""

from vtune.environments.environment import EnvironmentPart
from vtune.errors import DataError
from vtune.registry import Parts
from vtune.schema.sample import Sample
from vtune.verifiers import VERIFIERS

ENVIRONMENTS: Parts[EnvironmentPart] = Parts(
    "environment",
    lambda one: one.about,
    EnvironmentPart,
    calls=("async open(start) -> Episode", "check_sample(sample) -> None"),
)
"""Name in the data -> environment."""

DEFAULT = "tools"
"""The environment of samples that name none."""


def name_of(sample: Sample) -> str:
    """The name of a sample's environment."""
    return sample.environment or DEFAULT


def environment_of(sample: Sample) -> EnvironmentPart:
    """The environment of a sample.

    Raises:
        DataError: If it names one that does not exist.
    """
    name = name_of(sample)
    if name not in ENVIRONMENTS:
        raise DataError(
            f"there is no environment {name!r}",
            where=_where(sample),
            fix=ENVIRONMENTS.meant(name),
        )
    return ENVIRONMENTS[name]


def check_environment(sample: Sample) -> None:
    """Check, before a run, that a sample's environment exists, accepts the sample, and gives the reward that
    its verifier reads.

    Raises:
        DataError: If not.
    """
    part = environment_of(sample)
    verifier = VERIFIERS.get(sample.verifier)  # unknown verifiers are reported by the check of ground truths
    if verifier is not None and verifier.reads_outcome and not part.judges:
        raise DataError(
            f"verifier `{sample.verifier}` takes the reward of the environment, but `{name_of(sample)}` "
            "gives none",
            where=_where(sample),
            fix="set `environment` of the row to one that judges, or name another verifier",
        )
    if part.check_sample is not None:
        part.check_sample(sample)


def _where(sample: Sample) -> str:
    return f"sample {sample.id!r}, source {sample.source!r}"
