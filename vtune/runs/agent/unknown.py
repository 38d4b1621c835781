"""Tools in a record whose names vtune does not know: the record is read as it was written."""

from collections.abc import Iterable

from vtune.environments import ENVIRONMENTS
from vtune.report.progress import say
from vtune.schema.trajectory import Trajectory
from vtune.tools import INVALID, NONE, TOOLS


def unknown_tools(trajectories: Iterable[Trajectory]) -> set[str]:
    """Names of tools in calls that do not exist here; acts in an environment carry the environment's name."""
    names = {call.tool for one in trajectories for call in one.calls} - {INVALID, NONE}
    return {name for name in names if name not in TOOLS and name not in ENVIRONMENTS}


def warn_of(names: Iterable[str]) -> None:
    """Print one warning for each of these tools."""
    for name in sorted(names):
        say(f"warning: there is no tool {name!r} here; its calls are read as recorded")
