"""A look at the code before it runs: does it name something that no honest picture tool needs?

It follows import aliases and simple assignments, so it reports `os.remove` for `from os import remove as r`
and `r(p)`, and says nothing about `names.remove(n)`. It is a sign of behaviour, not the defence: that is the
kernel's work.

Source: CodeV, appendix 12 ("deleting, moving, or renaming files").
"""

import ast
import re
from collections.abc import Iterator

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
ROOTS = MODULES | {name.partition(".")[0] for name in CALLS | SUBMODULES} | {"__import__", "importlib"}
"""Without one of these words, or an alias of one, code can name nothing that is refused."""
_WORD = re.compile(r"\w+")


class Scanner:
    """Scans the calls of one session; remembers its aliases, as the session remembers its imports."""

    def __init__(self) -> None:
        self._aliases: dict[str, str] = {"os": "os"}
        """Name in the code -> full name. A session predefines `os`."""
        self._words = ROOTS
        """What makes a closer look necessary."""

    def scan(self, source: str, tree: ast.Module) -> list[str]:
        """What the code must not name, sorted, empty for honest code."""
        # Most code names none of the words: seen at once. Other letters may be spelt in several ways.
        if source.isascii() and self._words.isdisjoint(_WORD.findall(source)):
            return []
        found = self._look(tree)
        self._words = ROOTS | {
            alias for alias, name in self._aliases.items() if name.partition(".")[0] in ROOTS
        }
        return found

    def _look(self, tree: ast.Module) -> list[str]:
        found: set[str] = set()
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign)):
                found.update(self._learn(node))
        for node in nodes:
            if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
                name = self._resolve(node)
                if name is not None and _refused(name):
                    found.add(name)
        return sorted(name for name in found if not any(name.startswith(f"{other}.") for other in found))

    def _learn(self, node: ast.AST) -> Iterator[str]:
        """Take over the aliases that a statement makes; yields what it must not import."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                self._aliases[alias.asname or top] = alias.name if alias.asname else top
                if _refused(alias.name):
                    yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if alias.name == "*":
                    stars = [call for call in CALLS if call.startswith(f"{node.module}.") and "(" not in call]
                    self._aliases.update((call.rpartition(".")[2], call) for call in stars)
                else:
                    self._aliases[alias.asname or alias.name] = name
                if _refused(node.module):
                    yield node.module
                elif _refused(name):
                    yield name
        elif (
            isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        ):
            value = self._resolve(node.value)
            if value is not None:
                self._aliases[node.targets[0].id] = value

    def _resolve(self, node: ast.expr) -> str | None:
        """The full name that an expression stands for, as far as aliases tell."""
        if isinstance(node, ast.Name):
            return self._aliases.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._resolve(node.value)
            return f"{owner}.{node.attr}" if owner else None
        if isinstance(node, ast.Call):
            return self._resolve_call(node)
        return None

    def _resolve_call(self, node: ast.Call) -> str | None:
        texts = [
            arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        ]
        if isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) >= 2 and texts:
            owner = self._resolve(node.args[0])
            return f"{owner}.{texts[0]}" if owner else None
        if isinstance(node.func, ast.Name) and node.func.id == "__import__" and texts:
            return texts[0]
        function = self._resolve(node.func)
        if function == "importlib.import_module" and texts:
            return texts[0]
        return f"{function}()" if function else None


def _refused(name: str) -> bool:
    return (
        name in CALLS
        or name.partition(".")[0] in MODULES
        or any(name == module or name.startswith(f"{module}.") for module in SUBMODULES)
    )
