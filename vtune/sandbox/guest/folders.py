"""The folders of a sandbox: where a session works, what it reads, and how to be rid of all of it.

<sandbox>/s000001/ws   the session's workspace, its working folder
<sandbox>/s000001/in   its input pictures, which it may only read
"""

import contextlib
import os
import shutil
from pathlib import Path

WORKSPACE = "ws"
INPUTS = "in"


def make_session(folder: str, uid: int | None) -> None:
    """Make the folders of a session.

    Args:
        folder: Of the session; it must not exist.
        uid: Who owns the workspace, where sessions have users of their own.
    """
    # Passed through by a session's own user, listed by nobody.
    Path(folder).mkdir(0o711)
    Path(folder, INPUTS).mkdir(0o755)
    Path(folder, WORKSPACE).mkdir(0o700)
    if uid is not None:
        os.chown(f"{folder}/{WORKSPACE}", uid, uid)


def remove(folder: str) -> None:
    """Remove a folder with all that is in it; one that is not there is fine.

    Raises:
        OSError: If something cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        try:
            shutil.rmtree(folder)
        except PermissionError:
            # A session can make folders that not even their owner may enter.
            _open_up(folder)
            shutil.rmtree(folder)


def _open_up(folder: str) -> None:
    for path, names, _ in os.walk(folder):
        for name in names:
            inside = Path(path, name)
            if not inside.is_symlink():
                inside.chmod(0o700)
