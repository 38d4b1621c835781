"""What attacks may want to harm, set up so that only the sandbox protects it."""

import contextlib
import ctypes
import io
import os
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import PIL.Image
import PIL.PngImagePlugin

from vtune.errors import DataError
from vtune.sandbox.attacks.facts import (
    Entry,
    ProcessFacts,
    differences,
    entry,
    names,
    process,
    shared_objects,
    tree,
)

VARIABLE = "VTUNE_CANARY"
"""Holds the token in this process's environment, for attacks that look for secrets there."""
SECRET_BYTES = 7919
"""Size of secret.txt: a number that is printed nowhere else."""
SECRET_PICTURE = (61, 43)
"""Width and height of secret.png, for the same reason."""
CANARY_NAMES = ("victim.txt", "secret.txt", "secret.png", "inner.txt")
LONG_AGO = 1_600_000_000
"""Modification time of the canaries, so that any write shows."""
MAILBOX_BYTES = 4096
SOCKET_PATH_BYTES = 107
"""Length limit of a Unix socket's name, without the terminating 0 (unix(7))."""
DEVICES = tuple(Path("/dev", name) for name in ("null", "zero", "full", "random", "urandom", "tty"))


class Listeners:
    """Sockets that must never be reached: TCP and UDP on one port of the loopback, and three Unix ones."""

    def __init__(self, folder: Path, name: str) -> None:
        self.stream_path = folder / "stream.sock"
        self.datagram_path = folder / "datagram.sock"
        if len(os.fsencode(self.datagram_path)) > SOCKET_PATH_BYTES:
            what = f"{self.datagram_path} is too long for a Unix socket, which attacks try to reach"
            raise DataError(what, fix="set TMPDIR to a folder with a shorter name")
        self.abstract = name
        tcp, udp = _one_port()
        self.port: int = tcp.getsockname()[1]
        unix = [
            socket.socket(socket.AF_UNIX, kind)
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_STREAM)
        ]
        for place, listener in zip(
            (str(self.stream_path), str(self.datagram_path), f"\0{name}"), unix, strict=True
        ):
            listener.bind(place)
        for path in (self.stream_path, self.datagram_path):
            path.chmod(0o666)
        kinds = ("TCP port", "UDP port", "Unix socket", "Unix datagram socket", "abstract Unix socket")
        self._all = dict(zip(kinds, (tcp, udp, *unix), strict=True))
        for listener in self._all.values():
            listener.setblocking(False)
            if listener.type == socket.SOCK_STREAM:
                listener.listen(64)

    def reached(self) -> list[str]:
        """The sockets that were reached since the last call."""
        return [kind for kind, listener in self._all.items() if _emptied(listener)]

    def close(self) -> None:
        """Close all."""
        for listener in self._all.values():
            listener.close()


def _one_port() -> tuple[socket.socket, socket.socket]:
    """A TCP and a UDP socket bound to the same port number of the loopback."""
    while True:
        tcp, udp = (socket.socket(socket.AF_INET, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM))
        tcp.bind(("127.0.0.1", 0))
        try:
            udp.bind(tcp.getsockname())
        except OSError:  # another process uses this number for UDP; the next may be free
            tcp.close()
            udp.close()
            continue
        return tcp, udp


def _emptied(listener: socket.socket) -> int:
    """The number of connections or datagrams that were waiting."""
    count = 0
    while True:
        try:
            if listener.type == socket.SOCK_STREAM:
                listener.accept()[0].close()
            else:
                listener.recv(MAILBOX_BYTES)
        except BlockingIOError:
            return count
        count += 1


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is compared before and after an attack, outside the sandbox's folder."""

    canary: dict[str, Entry]
    """The canary folder, and the sockets next to it."""
    victim: ProcessFacts | None
    runtime: dict[str, Entry]
    """The module that attacks like to poison, and every `.pth` file."""
    runtime_names: set[str]
    devices: dict[str, tuple[int, int, int]]
    """Mode, owner and group of devices that every program needs; a sandbox may expose the real ones."""
    public: dict[Path, set[str]]
    """Contents of the world-writable folders."""
    shared: dict[str, set[tuple[int, int]]]


class World:
    """Canary files, a secret, a victim process and listeners; `with` creates and removes them."""

    def __enter__(self) -> Self:
        self.token = secrets.token_hex(16)
        self.needle = self.token[8:24]
        """The part of the token to search for; the snippets know the first 8 characters."""
        with contextlib.ExitStack() as stack:
            self.folder = Path(tempfile.mkdtemp(prefix="vtune-canary-")).resolve()
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.folder.chmod(0o755)
            self.canary = self.folder / "canary"
            self._fill_canary()
            self._listen()
            stack.callback(lambda: self.listeners.close())
            self._start_victim()
            stack.callback(self._end_victim)
            before = os.environ.get(VARIABLE)
            os.environ[VARIABLE] = self.token
            stack.callback(_set_variable, before)
            self.picture = _encoded(PIL.Image.radial_gradient("L").resize((160, 120)).convert("RGB"))
            """The input picture of every session."""
            self.site_packages = Path(sysconfig.get_path("purelib"))
            self.poisoned = self.site_packages / "numpy" / "__init__.py"
            self._kept = {path: path.read_bytes() for path in self._runtime_files()}
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def secret_picture(self) -> PIL.Image.Image:
        """The content of secret.png."""
        width, height = SECRET_PICTURE
        pattern = bytes.fromhex(self.token) * (width * height * 3 // 16 + 1)
        return PIL.Image.frombytes("RGB", SECRET_PICTURE, pattern[: width * height * 3])

    def look(self) -> Surroundings:
        """The current state of everything."""
        return Surroundings(
            canary=tree(self.folder),
            victim=process(self.victim.pid),
            runtime={path.name: entry(path) for path in self._runtime_files()},
            runtime_names=names(self.site_packages),
            devices={str(path): _rights(path) for path in DEVICES if path.exists()},
            public={folder: names(folder) for folder in _public_folders()},
            shared=shared_objects(),
        )

    def repair(self, before: Surroundings, strays: Iterable[Path]) -> None:
        """Undo what an attack has done, so that the next one is judged only by its own effects.

        Args:
            before: The result of `look` before the attack.
            strays: Files that the attack has left in public folders.
        """
        now = self.look()
        if any(differences(before.canary, now.canary)):
            self._fill_canary()
            self.listeners.close()
            self._listen()
        for path in strays:
            _remove(path)
        if now.victim is None or before.victim is None or harmed(before.victim, now.victim):
            self._end_victim()
            self._start_victim()
        if now.runtime != before.runtime or now.runtime_names != before.runtime_names:
            for name in now.runtime_names - before.runtime_names:
                _remove(self.site_packages / name)
            for path, content in self._kept.items():
                if not path.exists() or path.read_bytes() != content:
                    path.write_bytes(content)
        for name, (mode, owner, group) in before.devices.items():
            if now.devices.get(name) != (mode, owner, group):
                os.chown(name, owner, group)
                Path(name).chmod(mode)
        for kind, objects in now.shared.items():
            for _, number in objects - before.shared[kind]:
                _remove_shared(kind, number)

    def _fill_canary(self) -> None:
        shutil.rmtree(self.canary, ignore_errors=True)
        if self.canary.is_symlink() or self.canary.exists():
            self.canary.unlink()
        inner = self.canary / "inner"
        inner.mkdir(parents=True)
        (self.canary / "victim.txt").write_text("nobody may change this\n")
        (self.canary / "secret.txt").write_text(f"{self.token}\n".ljust(SECRET_BYTES, "."))
        (inner / "inner.txt").write_text(f"{self.token}\n")
        note = PIL.PngImagePlugin.PngInfo()
        note.add_text("secret", self.token)
        (self.canary / "secret.png").write_bytes(_encoded(self.secret_picture(), note))
        for path in (*self.canary.rglob("*"), self.canary):
            # Only the sandbox may keep an attack from these.
            path.chmod(0o777 if path.is_dir() else 0o666)
            os.utime(path, (LONG_AGO, LONG_AGO))

    def _listen(self) -> None:
        for name in ("stream.sock", "datagram.sock"):
            (self.folder / name).unlink(missing_ok=True)
        self.listeners = Listeners(self.folder, f"vtune-{self.token[:8]}")

    def _start_victim(self) -> None:
        self.victim = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", f"'{self.token}'; import sys; sys.stdin.read()"],
            env={VARIABLE: self.token},
            # It ends with this process, however that happens.
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _end_victim(self) -> None:
        self.victim.kill()
        self.victim.communicate()

    def _runtime_files(self) -> list[Path]:
        files = [self.poisoned, *sorted(self.site_packages.glob("*.pth"))]
        return [path for path in files if path.is_file()]


def harmed(before: ProcessFacts, now: ProcessFacts) -> bool:
    """Whether a process that only sleeps was stopped, replaced, or given another priority or other cores."""
    return (before.started, before.nice, before.policy, before.cores) != (
        now.started,
        now.nice,
        now.policy,
        now.cores,
    ) or now.state in "Tt"


def _encoded(picture: PIL.Image.Image, note: PIL.PngImagePlugin.PngInfo | None = None) -> bytes:
    content = io.BytesIO()
    picture.save(content, "PNG", pnginfo=note)
    return content.getvalue()


def _rights(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid


def _public_folders() -> list[Path]:
    candidates = [Path(tempfile.gettempdir()), *map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"))]
    return list(dict.fromkeys(path.resolve() for path in candidates if path.is_dir()))


def _set_variable(value: str | None) -> None:
    os.environ.pop(VARIABLE)
    if value is not None:
        os.environ[VARIABLE] = value


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_shared(kind: str, number: int) -> None:
    """Remove a System V object; all three calls take IPC_RMID, which is 0."""
    libc = ctypes.CDLL(None, use_errno=True)
    if kind == "sem":
        libc.semctl(number, 0, 0)
    elif kind == "shm":
        libc.shmctl(number, 0, None)
    else:
        libc.msgctl(number, 0, None)
