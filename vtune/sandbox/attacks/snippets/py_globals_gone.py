# MUST NOT: take the session's names away from under the runner
# CHECK: next call answered; broker alive
# SOFT: 2
# LAYER: protocol

import sys


def clear(frame):
    while frame is not None:
        names, frame = frame.f_locals, frame.f_back
        names.clear()


clear(sys._getframe().f_back)
