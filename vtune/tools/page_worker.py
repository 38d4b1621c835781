"""Runs as a program of its own (see `page_text.py`): HTML on its standard input, JSON with the text back.

Usage: page_worker.py SECONDS. Ends when its input ends, or if a page takes longer than SECONDS.
"""

import json
import signal
import struct
import sys

from trafilatura import extract

LENGTH = struct.Struct("!I")
"""Precedes every message: its size in bytes."""


def main() -> None:
    """Answer every page with `{"text": …}`, or `{"problem": …}` if the extractor fails."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    seconds, pages, answers = float(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer
    while head := pages.read(LENGTH.size):
        html = pages.read(*LENGTH.unpack(head)).decode()
        # Nothing handles SIGALRM: it ends the process wherever it is, also inside a library's C code.
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            answer = {"text": extract(html) or ""}
        except Exception as error:  # noqa: BLE001 - a page may break any part of the extractor
            answer = {"problem": f"its text cannot be extracted ({type(error).__name__})"}
        signal.setitimer(signal.ITIMER_REAL, 0)
        data = json.dumps(answer).encode()
        answers.write(LENGTH.pack(len(data)) + data)
        answers.flush()


if __name__ == "__main__":
    main()
