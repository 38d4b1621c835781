# MUST NOT: work at the end of the interpreter, after the last call
# CHECK: killed or timeout within soft+grace; no process left
# SOFT: 1
# LAYER: freeze

import atexit
import os
import sys
import weakref


def forever(*arguments):
    while True:
        try:
            open("after.txt", "a").write("still here\n")
        except BaseException:
            pass


class Last:
    def __del__(self):
        forever()


atexit.register(forever)
keep = Last()
weakref.finalize(keep, forever)
sys.exitfunc = forever
os.register_at_fork(before=forever, after_in_child=forever)
sys.exit(0)
