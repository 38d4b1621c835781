"""How many sandbox sessions a machine has room for."""

import resource
from pathlib import Path

from vtune.errors import SandboxUnavailable

SESSION_BYTES = 24 << 20
"""Expected memory per session: 7 MB idle, 38 MB while it holds a decoded 4K picture (measured), which few
sessions do at the same time."""
MEMORY_SHARE = 0.5
"""Share of the free memory that sessions may take; ours."""
DESCRIPTORS = 4
"""Per session, in this process: pidfd, channel, output file, workspace."""
SPARE_DESCRIPTORS = 256
"""For everything else that this process opens."""
LEAST_DESCRIPTORS = 256
"""A fork server needs this many: it keeps readable paths open from descriptor 200 on."""


def capacity(wanted: int) -> int:
    """Sessions that may live at the same time: as many as wanted, or as memory and open files allow.

    Raises:
        SandboxUnavailable: If the limit on open files leaves no room for a single session.
    """
    return min(wanted, _by_memory(), _by_descriptors(wanted))


def _by_memory() -> int:
    """Sessions that fit into memory; no limit if the amount of free memory is unknown."""
    facts = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) << 10 for line in facts if line.startswith("MemAvailable:"))
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        path = Path("/sys/fs/cgroup") / name
        if path.exists() and (limit := path.read_text().strip()).isdigit():
            free = min(free, int(limit))
    return max(1, int(free * MEMORY_SHARE / SESSION_BYTES))


def _by_descriptors(wanted: int) -> int:
    """Sessions that the limit on open files allows; the soft limit is raised as far as possible.

    Raises:
        SandboxUnavailable: If it leaves no room for a single session.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < LEAST_DESCRIPTORS:
        raise SandboxUnavailable(
            f"the sandbox cannot run where a process may have at most {hard} open files",
            fix=f"raise the hard limit on open files to {LEAST_DESCRIPTORS} or more (ulimit -Hn)",
        )
    need = wanted * DESCRIPTORS + SPARE_DESCRIPTORS
    if soft < need:
        soft = min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, (soft - SPARE_DESCRIPTORS) // DESCRIPTORS)
