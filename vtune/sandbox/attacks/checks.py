"""What an attack harmed: one function per kind of harm, one line per breach."""

import io
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import PIL.Image

from vtune.sandbox.attacks.facts import Entry, ProcessFacts, differences
from vtune.sandbox.attacks.suite import Attack
from vtune.sandbox.attacks.world import CANARY_NAMES, SECRET_BYTES, SECRET_PICTURE, Surroundings, harmed
from vtune.sandbox.types import Execution, Limits
from vtune.schema.decode import UNDECODABLE

LATE_SECONDS = 1.0
"""Ours: how long the end of a call may take beyond soft limit and grace if nothing waits for a core."""
ENTRIES_FACTOR, BYTES_FACTOR = 20, 4
"""Ours: factors by which a workspace may exceed its quota between two checks of the sandbox."""
SPARE_CHARS = 4096
"""Room for the sandbox's own notes after the printed text."""
MEMORY_BYTES = 512 << 20
"""Ours: how much this process may grow during an attack."""
DESCRIPTORS = {0, 1, 2, 10}
"""Open in a session before any code runs: no input, its output, no errors, the channel."""
NOTHING = "/dev/null"
SPARE_TICKS = 5
"""Ours: CPU time, in 1/100 s, that a process may use before it stops: a signal interrupts no large write."""
EVIL = "evil"
"""Part of the names that attacks give to public files."""
PYTHONS_WORDS = ("psm_", "wnsm_", "sem.")
"""Parts of the random names that Python gives to shared memory and semaphores."""

TELLTALES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("refused", "no socket created", "no new process", "memoryerror"), r"\bDONE\b"),
    (("library import unaffected",), r"^EVIL\b"),
)
"""If a CHECK contains one of these phrases, no printed line may match the pattern."""
UNPARSED = re.compile(r"^(?:Syntax|Indentation|Tab)Error\b.*", re.MULTILINE)


def never_ran(execution: Execution) -> str:
    """The parser's message for code that it rejected, so that no line of it ran; otherwise empty."""
    # An error from code that ran comes with the line that raised it.
    if execution.status != "error" or execution.error.startswith("Traceback"):
        return ""
    complaint = UNPARSED.search(execution.error)
    return complaint[0] if complaint else ""


def canary(before: Surroundings, after: Surroundings) -> Iterator[str]:
    """Host files are unchanged: names, content, mode, owner, links, times, attributes."""
    yield from (f"host file: {what}" for what in differences(before.canary, after.canary))


def victim(before: Surroundings, after: Surroundings) -> Iterator[str]:
    """A foreign process is still alive, not stopped, and keeps its priority and cores."""
    if after.victim is None or before.victim is None:
        yield "a foreign process was killed"
    elif harmed(before.victim, after.victim):
        yield "a foreign process was stopped, or given another rank or core"


def runtime(before: Surroundings, after: Surroundings) -> Iterator[str]:
    """The Python packages that all sessions share are unchanged."""
    yield from (f"runtime: {name} is new" for name in after.runtime_names - before.runtime_names)
    yield from (f"runtime: {name} is gone" for name in before.runtime_names - after.runtime_names)
    yield from (f"runtime: {what}" for what in differences(before.runtime, after.runtime))


def devices(before: Surroundings, after: Surroundings) -> Iterator[str]:
    """Devices have kept their mode and owner."""
    for name, rights in before.devices.items():
        if after.devices.get(name) != rights:
            yield f"{name} has another mode or owner"


def strays(
    before: Surroundings,
    after: Surroundings,
    *,
    text: str,
    token8: str,
    uid: int | None,
    writable: Collection[Path],
) -> Iterator[Path]:
    """New files in world-writable folders, as far as they can be attributed to the attack.

    Other processes use those folders too. A new name counts if it contains the token, if `text` (the code
    and its output) mentions it, or if it belongs to the session, whose user id is `uid`. If the session
    shares our user (`uid` is None), `EVIL` in the name is enough, and so is one of `PYTHONS_WORDS` in the
    `writable` folders, in which a harmless session has just been able to create a file. Python creates its
    randomly named files by the same plain call, so in other folders they belong to another process. `token8`
    is the start of the token, which snippets put into names.
    """
    for folder, there in after.public.items():
        for name in there - before.public.get(folder, set()):
            words = [token8] if uid is not None else [token8, EVIL]
            words += PYTHONS_WORDS if uid is None and folder in writable else ()
            named = name in text or any(word in name.lower() for word in words)
            if named or (uid is not None and _owner(folder / name) == uid):
                yield folder / name


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except FileNotFoundError:  # it came and went, so it was another process's
        return None


def shared(before: Surroundings, after: Surroundings) -> Iterator[str]:
    """No System V object was left behind."""
    for kind, objects in after.shared.items():
        if objects - before.shared[kind]:
            yield f"a System V object ({kind}) was made"


def leaked(execution: Execution, workspace: Path, *, needle: str, picture: PIL.Image.Image) -> Iterator[str]:
    """The secret is not in anything that came back, nor in the workspace.

    `needle` is the part of the token that the code was not given; `picture` is the content of the secret
    picture, which may come back re-encoded.
    """
    texts = {"the output": execution.output, "the error": execution.error, "a name": repr(execution.names)}
    yield from (f"the secret is in {where}" for where, text in texts.items() if needle in text)
    for number, content in enumerate(execution.images):
        if needle.encode() in content or _shows(content, picture):
            yield f"the secret is in picture {number}"
    for parent, _, files in os.walk(workspace):
        for path in (Path(parent, name) for name in files):
            if needle in path.name or (path.is_file() and not path.is_symlink() and _holds(path, needle)):
                yield f"the secret is in the workspace, in {path.name!r}"


def _shows(content: bytes, picture: PIL.Image.Image) -> bool:
    try:
        with PIL.Image.open(io.BytesIO(content)) as found:
            return found.size == SECRET_PICTURE and found.convert("RGB").tobytes() == picture.tobytes()
    except UNDECODABLE:  # then it shows nothing
        return False


def _holds(path: Path, needle: str) -> bool:
    # A snippet may have made its file unreadable even to its owner.
    path.chmod(path.stat().st_mode | stat.S_IRUSR)
    with path.open("rb") as file:
        return needle.encode() in file.read(64 << 20)


def disclosed(execution: Execution, attack: Attack, *, command_line: str) -> Iterator[str]:
    """What the snippet itself reports, if its CHECK relies on that.

    `command_line` is that of this process, for attacks that look for foreign ones.
    """
    check = attack.check.lower()
    lines = execution.output.splitlines()
    for phrases, pattern in TELLTALES:
        if any(phrase in check for phrase in phrases):
            yield from (f"printed: {line[:100]}" for line in lines if re.search(pattern, line))
    if "names of canary files" in check:
        yield from (f"printed the name {name}" for name in CANARY_NAMES if name in execution.output)
    if "cmdline" in check and command_line and command_line in execution.output:
        yield "printed the command line of the trainer"


def metadata(execution: Execution, attack: Attack) -> Iterator[str]:
    """The size of the secret file is not printed; only for attacks whose CHECK begins with "INFO:"."""
    if informational(attack) and re.search(rf"(?<!\d){SECRET_BYTES}(?!\d)", execution.output):
        yield "printed the size of a host file"


def informational(attack: Attack) -> bool:
    """Whether the attack only looks for metadata, which only a mount namespace hides."""
    return re.search(r"(?:^|; )INFO:", attack.check) is not None


def reached(listeners: Iterable[str]) -> Iterator[str]:
    """Nobody connected to the listening sockets."""
    yield from (f"reached a {kind}" for kind in listeners)


def inputs(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> Iterator[str]:
    """The input pictures are unchanged."""
    yield from (f"input folder: {what}" for what in differences(before, after))


def beside(before: set[str], after: set[str]) -> Iterator[str]:
    """Nothing appeared or disappeared next to the workspace."""
    yield from (f"beside the workspace: {name} is new" for name in after - before)
    yield from (f"beside the workspace: {name} is gone" for name in before - after)


def late(took: float, limits: Limits, *, slowdown: float, waited: float) -> Iterator[str]:
    """The call returned in time.

    Args:
        took: Seconds that the call took.
        limits: Limits of the session.
        slowdown: Factor by which the busy machine slowed its process down.
        waited: Seconds for which the process waited for a core; a call gets these back before it is killed.
    """
    allowed = limits.seconds + limits.grace + min(waited, limits.seconds) + LATE_SECONDS * slowdown
    if took > allowed:
        yield f"the call came back after {took:.1f} s; {allowed:.1f} s were allowed"


def too_much(execution: Execution, limits: Limits) -> Iterator[str]:
    """What came back is within the limits."""
    sizes = {
        "output": (len(execution.output), limits.output_chars + SPARE_CHARS),
        "error": (len(execution.error), limits.error_chars + SPARE_CHARS),
        "pictures": (len(execution.images), limits.images_per_call),
        "largest picture": (max(map(len, execution.images), default=0), limits.file_mb << 20),
    }
    for what, (size, allowed) in sizes.items():
        if size > allowed:
            yield f"{what}: {size}, where {allowed} are allowed"


def overfilled(entries: int, taken: int, limits: Limits) -> Iterator[str]:
    """The workspace, with these numbers of files and folders and of bytes on disk, stays near its quota."""
    if entries > ENTRIES_FACTOR * limits.workspace_files:
        yield f"{entries} files in the workspace, whose quota is {limits.workspace_files}"
    if taken > BYTES_FACTOR * limits.workspace_mb << 20:
        yield f"{taken >> 20} MiB in the workspace, whose quota is {limits.workspace_mb} MiB"


def memory(before: int, after: int) -> Iterator[str]:
    """This process has not grown; `before` and `after` are its peak memory in bytes at these times."""
    if after - before > MEMORY_BYTES:
        yield f"this process grew by {(after - before) >> 20} MiB"


def running(
    first: ProcessFacts | None, now: ProcessFacts | None, later: ProcessFacts | None, *, killed: bool
) -> Iterator[str]:
    """Between calls the session's process is stopped and uses no CPU; a killed one is gone.

    The three states are right after the call, once it had time to stop, and a while later; None if it had
    ended. `killed` is the sandbox's claim.
    """
    if killed and later is not None:
        yield "the killed session lives on"
    elif first is not None and now is not None and later is not None:
        if later.ticks > now.ticks or now.ticks > first.ticks + SPARE_TICKS:
            yield f"used {(later.ticks - first.ticks) / 100:.2f} s of CPU after the call"
        if later.state not in "Tt":
            yield f"is not stopped after the call (state {later.state})"


def inherited(descriptors: Mapping[int, str], folder: Path) -> Iterator[str]:
    """A session that has run nothing holds nothing that belongs to others; its own files are in `folder`."""
    for number, what in descriptors.items():
        if number not in DESCRIPTORS and what != NOTHING and not Path(what).is_relative_to(folder):
            yield f"descriptor {number} ({what}) was open before any code ran"


def confined(before: ProcessFacts, now: ProcessFacts | None) -> Iterator[str]:
    """The session (None if it has ended) has one thread, no capabilities, a CPU limit, and its priority."""
    if now is None:
        return
    if now.threads != 1:
        yield f"has {now.threads} threads"
    if now.capabilities:
        yield f"has the capabilities {now.capabilities:#x}"
    if now.cpu_limit == "unlimited":
        yield "has no limit of CPU time"
    if now.nice < before.nice or now.policy != before.policy:
        yield "has given itself a higher priority"


def answered(expected: str, execution: Execution) -> Iterator[str]:
    """A call that claims to have run did run: it printed something that cannot be guessed."""
    if execution.status == "infra":
        yield f"the sandbox failed at the next call: {execution.error[:200]}"
    elif execution.status == "ok" and execution.output != expected:
        yield f"the next call was answered by something else: {execution.output[:80]!r}"


def works(who: str, expected: str, execution: Execution) -> Iterator[str]:
    """Another session (`who` is for the message) runs code and gives the right answer."""
    if (execution.status, execution.output) != ("ok", expected):
        said = execution.error or execution.output
        yield f"{who} does not work any more: {execution.status}: {said[-200:]!r}"


def neighbour(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> Iterator[str]:
    """The folder of another session is unchanged."""
    yield from (f"another session's folder: {what}" for what in differences(before, after))


def server(before: ProcessFacts | None, after: ProcessFacts | None) -> Iterator[str]:
    """The fork server is alive, the same process, and has kept its priority."""
    if before is None or after is None or before.started != after.started:
        yield "the fork server died"
    elif harmed(before, after):
        yield "the fork server was stopped, or given another rank or core"


def left_over(expected: int, processes: int) -> Iterator[str]:
    """No process is left once the session has ended."""
    if processes > expected:
        yield f"{processes - expected} processes are left over"
