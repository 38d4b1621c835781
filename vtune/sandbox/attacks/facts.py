"""A snapshot of files and processes, and what differs between two of them."""

import hashlib
import os
import resource
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

TICK_NS = 10_000_000
"""A clock tick: a process that ran for less has met too few others to show how busy the machine is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What can be changed about a file; access times are left out."""

    kind: int
    mode: int
    owner: tuple[int, int]
    links: int
    mtime: int
    content: str
    """Hash of a file, or target of a link."""
    attributes: tuple[tuple[str, bytes], ...]


def tree(folder: Path) -> dict[str, Entry]:
    """Everything in a folder, including itself as ".", by relative path; links are not followed."""
    found = {".": entry(folder)}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            found[path.relative_to(folder).as_posix()] = entry(path)
    return found


def entry(path: Path) -> Entry:
    """One file, folder or link."""
    status = path.lstat()
    content = ""
    if stat.S_ISREG(status.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    elif stat.S_ISLNK(status.st_mode):
        content = str(path.readlink())
    return Entry(
        kind=stat.S_IFMT(status.st_mode),
        mode=stat.S_IMODE(status.st_mode),
        owner=(status.st_uid, status.st_gid),
        links=status.st_nlink,
        mtime=status.st_mtime_ns,
        content=content,
        attributes=_attributes(path),
    )


def _attributes(path: Path) -> tuple[tuple[str, bytes], ...]:
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:  # the file system does not support them
        return ()
    return tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in sorted(names))


def differences(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> Iterator[str]:
    """What changed in a tree, with one line per file."""
    for name in before.keys() | after.keys():
        if name not in after:
            yield f"{name} is gone"
        elif name not in before:
            yield f"{name} is new"
        elif before[name] != after[name]:
            changed = [
                field.name
                for field in fields(Entry)
                if getattr(before[name], field.name) != getattr(after[name], field.name)
            ]
            yield f"{name} has another {', '.join(changed)}"


def names(folder: Path) -> set[str]:
    """The direct contents of a folder; empty if it does not exist."""
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def usage(folder: Path, *, most: int) -> tuple[int, int]:
    """Number of entries below a folder, counted up to `most`, and the bytes that they take on disk."""
    entries = taken = 0
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            try:
                taken += os.lstat(f"{parent}/{name}").st_blocks * 512
            except FileNotFoundError:  # it came and went
                continue
            entries += 1
            if entries >= most:
                return entries, taken
    return entries, taken


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """What the kernel reports of a live process."""

    state: str
    """One letter: R is running, S sleeping, T stopped."""
    parent: int
    group: int
    nice: int
    policy: int
    """Scheduling policy."""
    threads: int
    ticks: int
    """CPU time, in clock ticks of 1/100 s."""
    started: int
    """In clock ticks since boot; distinguishes a process from a later one with the same id."""
    capabilities: int
    """Effective capabilities, as bits."""
    cpu_limit: str
    """Hard limit of CPU seconds, or "unlimited"."""
    cores: frozenset[int]
    """Cores that it may run on."""


def process(pid: int) -> ProcessFacts | None:
    """The state of a process, or None if it has ended (a zombie counts as ended)."""
    folder = Path("/proc", str(pid))
    try:
        parts = (folder / "stat").read_text().rpartition(")")[2].split()
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        limits = (folder / "limits").read_text().splitlines()
        cores = frozenset(os.sched_getaffinity(pid))
    except (FileNotFoundError, ProcessLookupError):
        return None
    if parts[0] in "ZX":
        return None
    # Fields as in proc(5), where the state is field 3.
    return ProcessFacts(
        state=parts[0],
        parent=int(parts[1]),
        group=int(parts[3]),
        ticks=int(parts[11]) + int(parts[12]),
        nice=int(parts[16]),
        threads=int(parts[17]),
        started=int(parts[19]),
        policy=int(parts[38]),
        capabilities=int(status["CapEff"], 16),
        cpu_limit=next(line for line in limits if line.startswith("Max cpu time")).split()[4],
        cores=cores,
    )


@dataclass(frozen=True, slots=True)
class Turns:
    """How much CPU time a process has had among the others, in nanoseconds since its start."""

    ran: int
    waited: int
    """Time spent runnable, waiting for a core."""

    def slowdown_since(self, before: "Turns") -> float:
        """Elapsed over running time, counting only waits for a core: 1 on a quiet machine."""
        return 1 + (self.waited - before.waited) / max(self.ran - before.ran, TICK_NS)


def turns(pid: int) -> Turns | None:
    """The turns of a process's first thread; None if it has ended or the kernel does not report them."""
    try:
        ran, waited, _ = Path("/proc", str(pid), "schedstat").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Turns(int(ran), int(waited))


def descriptors(pid: int) -> dict[int, str] | None:
    """The open descriptors of a process -> what they are; None if the kernel does not report them."""
    found = {}
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            found[int(link.name)] = str(link.readlink())
    except OSError:  # it has ended, or access is denied
        return None
    return found


def descendants(pid: int, *, group: int | None = None, below: Path | None = None) -> set[int]:
    """Processes that `pid` has started, in any generation.

    Those whose parent has ended are recognized by their session (`group`, as set by setsid) or by a working
    directory `below` a folder, if these are given.
    """
    alive: dict[int, tuple[int, int]] = {}
    inside: set[int] = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parts = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if parts[0] in "ZX":
            continue
        alive[int(folder.name)] = (int(parts[1]), int(parts[3]))
        try:
            if below is not None and (folder / "cwd").readlink().is_relative_to(below):
                inside.add(int(folder.name))
        except OSError:  # access is denied; its parent and its session suffice
            continue
    found = {number for number, (_, its_group) in alive.items() if its_group == group} | inside
    grown = True
    while grown:
        more = {number for number, (parent, _) in alive.items() if parent in found | {pid}} - found
        found |= more
        grown = bool(more)
    return found - {pid}


def peak_memory() -> int:
    """The most memory that this process has ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def shared_objects() -> dict[str, set[tuple[int, int]]]:
    """System V objects by kind ("shm", "sem", "msg"), each as (key, id)."""
    found = {}
    for kind in ("shm", "sem", "msg"):
        path = Path("/proc/sysvipc", kind)
        lines = path.read_text().splitlines()[1:] if path.exists() else []
        found[kind] = {(int(line.split()[0]), int(line.split()[1])) for line in lines}
    return found
