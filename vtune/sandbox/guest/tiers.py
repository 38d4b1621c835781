"""Which protection this machine offers: the best is used; without a sufficient one, nothing runs.

`namespaces`: a separate view of files, processes and network for the fork server and its sessions, besides
the layers of `flat`. `flat`: Landlock and seccomp, which need no privileges. `unsafe`: none, only on request.
"""

import os
import platform
import site
import stat
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path, PurePath

from . import landlock, namespaces, seccomp
from .settings import Settings

SYSTEM = (
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/fonts",
    "/usr/share/fonts",
    "/usr/share/zoneinfo",
)
"""Libraries, time zones and fonts, if the machine has them."""
PACKAGES = ("site-packages", "dist-packages")
"""Names of folders that packages are installed into."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
MOUNT_POINT = ".view"
"""Folder in the sandbox's own folder where its view of the files is assembled."""
FIRST_UID = 1_610_612_736
"""First user id of sessions: far from those of people and containers."""
UIDS = 1 << 20
CAPABILITIES = (0, 1, 3, 5, 6, 7)
"""CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID: needed to run sessions as separate users."""


class Unavailable(Exception):
    """This machine offers no sufficient protection; the text says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """The protection in force."""

    name: str
    namespaces: bool
    user_namespace: bool
    """Whether the namespaces needed a user namespace, because the trainer is not root."""
    landlock: int
    """Interface version; 0: not used."""
    seccomp: bool
    private_uid: bool
    """Whether each session has its own user."""
    notes: tuple[str, ...]
    """Why layers are missing."""

    @property
    def files(self) -> bool:
        """Whether a session is kept from all files except its own and those of the runtime."""
        return bool(self.landlock) or (self.namespaces and self.private_uid)


def choose(settings: Settings) -> Tier:
    """The best tier that the machine and the settings allow. Runs in the guardian, before any namespace.

    Raises:
        Unavailable: If there is no such tier.
    """
    if settings.isolation == "unsafe":
        return Tier(
            name="unsafe",
            namespaces=False,
            user_namespace=False,
            landlock=0,
            seccomp=False,
            private_uid=False,
            notes=("unsafe was asked for: model-written code runs with this user's rights",),
        )
    notes = [f"{layer} is left out on purpose" for layer in settings.without]
    spaces = _namespaces(settings, notes)
    abi = _landlock(settings, notes)
    filtered = _seccomp(settings, notes)
    tier = Tier(
        name="namespaces" if spaces else "flat",
        namespaces=spaces,
        user_namespace=spaces and os.geteuid() != 0,
        landlock=abi,
        seccomp=filtered,
        private_uid=_private_uid(settings, spaces, notes),
        notes=tuple(notes),
    )
    if not tier.files and not {"landlock", "namespaces"} & set(settings.without):
        raise Unavailable("; ".join(notes))
    return tier


def runtime() -> tuple[str, ...]:
    """Folders and files that sessions may read: Python, its packages, the system's libraries and fonts.

    No checkout and no data: the target of an editable install stays unreadable.
    """
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    # A virtual environment may be based on another one, whose packages a .pth file adds to the path.
    paths += [path for path in sys.path if PurePath(path).name in PACKAGES]
    paths += [*site.getsitepackages(), f"{sys.base_prefix}/lib", *SYSTEM]
    found = [path for path in dict.fromkeys(paths) if Path(path).exists()]
    # A path inside another one needs no rule.
    return tuple(
        path for path in found if not any(path.startswith(f"{other}/") for other in found if other != path)
    )


def view(settings: Settings) -> namespaces.View:
    """What stays visible in the sandbox's view of the files."""
    return namespaces.View(read_only=runtime(), devices=DEVICES, writable=(settings.folder,))


def mount_point(settings: Settings) -> str:
    """Where that view is assembled."""
    return f"{settings.folder}/{MOUNT_POINT}"


def _namespaces(settings: Settings, notes: list[str]) -> bool:
    if settings.isolation == "flat":
        notes.append("namespaces: flat was asked for")
        return False
    if "namespaces" in settings.without:
        return False
    reason = namespaces.why_not(view(settings), mount_point(settings))
    if reason and settings.isolation == "namespaces":
        raise Unavailable(f"namespaces: {reason}")
    if reason:
        notes.append(f"namespaces: {reason}")
    return not reason


def _landlock(settings: Settings, notes: list[str]) -> int:
    if "landlock" in settings.without:
        return 0
    abi = min(landlock.abi(), settings.landlock_abi)
    if not abi:
        notes.append("landlock: the kernel lacks it (5.13 and later can have it)")
    return abi


def _seccomp(settings: Settings, notes: list[str]) -> bool:
    if "seccomp" in settings.without:
        return False
    if not seccomp.supported(platform.machine()):
        notes.append(f"seccomp: no table of system calls for {platform.machine()}")
        raise Unavailable("; ".join(notes))
    return True


def _private_uid(settings: Settings, spaces: bool, notes: list[str]) -> bool:
    if "uid" in settings.without:
        return False
    if os.geteuid() != 0:
        notes.append("uid: only root can give sessions users of their own")
        return False
    if not _capable():
        notes.append("uid: this root may not act for other users")
        return False
    if not _mapped(FIRST_UID, UIDS):
        notes.append("uid: this container has no spare user ids")
        return False
    closed = [] if spaces else [path for path in (*runtime(), settings.folder) if not _open_to_all(path)]
    if closed:
        notes.append(f"uid: another user cannot reach {closed[0]}")
    return not closed


def _capable() -> bool:
    """Whether this process can create, read, signal and remove what belongs to a session's own user."""
    facts = Path("/proc/self/status").read_text().splitlines()
    held = next(int(line.split()[1], 16) for line in facts if line.startswith("CapEff:"))
    return all(held >> number & 1 for number in CAPABILITIES)


def _mapped(first: int, count: int) -> bool:
    """Whether these user ids exist in the user namespace of this process."""
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        start, _, length = (int(part) for part in line.split())
        if start <= first and first + count <= start + length:
            return True
    return False


def _open_to_all(path: str) -> bool:
    """Whether every user can traverse all folders above a path."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in Path(path).resolve().parents)
