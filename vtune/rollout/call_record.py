"""What a turn did, in the form in which records store it."""

from vtune.environments import environment_of, name_of
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call
from vtune.tools.observation import Observation, recorded


def recorded_as(sample: Sample) -> str:
    """The tool name under which an environment's act is recorded if the act names no tool."""
    return environment_of(sample).recorded_as or name_of(sample)


def call_of(tool: str, arguments: str, seen: Observation, span: tuple[int, int], first: int) -> Call:
    """The record of a call.

    Args:
        tool: The tool's name.
        arguments: As JSON.
        seen: The result.
        span: First and last+1 token of the call.
        first: The index that its first picture will get.
    """
    return Call(
        tool=tool,
        arguments=arguments,
        status=seen.status,
        error=seen.error,
        output=seen.output,
        crops=recorded(seen.crops, first),
        seconds=seen.seconds,
        span=span,
    )
