"""Scans code before it runs: does it name something that no honest picture tool needs?

It follows import aliases and simple assignments, so it reports `os.remove` for `from os import remove as r`
and `r(p)`, but nothing for `names.remove(n)`. A name that may be harmless is let through. The scan is a sign
of behaviour, not the defence, which is up to the kernel.

Source: CodeV, appendix 12 ("deleting, moving, or renaming files").
"""

import ast
import re

from vtune.sandbox.names import Reader, Scope

OS_CALLS = (
    "remove",
    "unlink",
    "rmdir",
    "removedirs",
    "rename",
    "renames",
    "replace",
    "truncate",
    "link",
    "symlink",
    "chmod",
    "chown",
    "lchown",
    "chroot",
    "mkfifo",
    "mknod",
    "system",
    "popen",
    "kill",
    "killpg",
    "fork",
    "forkpty",
    "execl",
    "execle",
    "execlp",
    "execlpe",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "spawnl",
    "spawnle",
    "spawnlp",
    "spawnlpe",
    "spawnv",
    "spawnve",
    "spawnvp",
    "spawnvpe",
    "posix_spawn",
    "posix_spawnp",
    "setuid",
    "setgid",
    "setsid",
)
PATH_CALLS = (
    "unlink",
    "rmdir",
    "rename",
    "replace",
    "chmod",
    "symlink_to",
    "hardlink_to",
)

CALLS = frozenset(
    [f"os.{name}" for name in OS_CALLS]
    + [f"pathlib.{kind}().{name}" for kind in ("Path", "PosixPath") for name in PATH_CALLS]
    + ["shutil.rmtree", "shutil.move", "shutil.chown", "sys.settrace", "sys.setprofile"]
    + ["sys._getframe", "sys._current_frames", "inspect.currentframe", "inspect.stack", "gc.get_objects"]
)
"""Full names that are refused, called or not. `()` stands for the result of a call."""

MODULES = frozenset(
    {
        "_ctypes",
        "_posixsubprocess",
        "_socket",
        "aiohttp",
        "cffi",
        "ctypes",
        "ftplib",
        "http",
        "httpx",
        "multiprocessing",
        "nt",
        "paramiko",
        "posix",
        "pty",
        "requests",
        "resource",
        "signal",
        "smtplib",
        "socket",
        "socketserver",
        "ssl",
        "subprocess",
        "telnetlib",
        "urllib3",
        "webbrowser",
    }
)
"""Modules that are refused as a whole."""
SUBMODULES = frozenset({"urllib.request", "asyncio.subprocess", "concurrent.futures.process"})
REFUSED = CALLS | MODULES | SUBMODULES
KNOWN = REFUSED | {name[:end] for name in REFUSED for end in range(1, len(name)) if name[end] in ".("}
"""What is refused, and all prefixes of it."""
ROOTS = {name.partition(".")[0] for name in REFUSED} | {"__import__", "importlib"}
"""Code without these words, and without names bound to them, can name nothing that is refused."""
_WORD = re.compile(r"\w+")


class Scanner:
    """Scans the calls of one session; like the session, it remembers what names stand for."""

    def __init__(self) -> None:
        self._scope = Scope()
        # The relevant names that a session predefines.
        self._scope.bind("os", "os")
        self._scope.bind("image_path", None)
        self._words = ROOTS
        """Words that make a closer look necessary."""

    def plain(self, source: str) -> list[str] | None:
        """The words of code that needs no closer look, which is most code; None for other code."""
        # Non-ASCII letters may have several spellings.
        if source.isascii() and self._words.isdisjoint(words := _WORD.findall(source)):
            return words
        return None

    def bind(self, words: list[str]) -> None:
        """Record that plain code ran, and may have bound any of its words."""
        self._scope.bind_to_anything(words)

    def scan(self, source: str, tree: ast.Module) -> list[str]:
        """The forbidden names in the code, sorted; empty for honest code, which is then assumed to run."""
        words = self.plain(source)
        if words is not None:
            self.bind(words)
            return []
        scope = self._scope.copy()
        refused = sorted(REFUSED & Reader(KNOWN).read(tree, scope))
        # Refused code does not run, so it binds nothing.
        if not refused:
            self._scope = scope
            self._words = ROOTS | scope.known()
        return refused
