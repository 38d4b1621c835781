"""The folders of a sandbox: where a session works, what it reads, and how to be rid of all of it.

    <sandbox>/s000001/ws   the session's workspace, its working folder
    <sandbox>/s000001/in   its input pictures, which it may only read
"""

import contextlib
import os
import shutil

WORKSPACE = "ws"
INPUTS = "in"


def make_session(folder: str, uid: int | None) -> None:
    """Make the folders of a session.

    Args:
        folder: Of the session; it must not exist.
        uid: Who owns the workspace, where sessions have users of their own.
    """
    # Passed through by a session's own user, listed by nobody.
    os.mkdir(folder, 0o711)
    os.mkdir(f"{folder}/{INPUTS}", 0o755)
    os.mkdir(f"{folder}/{WORKSPACE}", 0o700)
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
            if not os.path.islink(f"{path}/{name}"):
                os.chmod(f"{path}/{name}", 0o700)
