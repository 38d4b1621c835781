# MUST NOT: forbid the runner everything by a hook that cannot be taken out
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: protocol

import sys


def never(event, arguments):
    if event in ("compile", "exec", "open", "os.chdir", "object.__getattr__", "signal.setitimer"):
        raise RuntimeError(event)


sys.addaudithook(never)
