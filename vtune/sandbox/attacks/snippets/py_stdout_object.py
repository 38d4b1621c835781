# MUST NOT: leave output objects behind that never return
# CHECK: killed or timeout within soft+grace; next call answered
# SOFT: 1
# LAYER: protocol

import sys


class Endless:
    def write(self, text):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass

    flush = close = fileno = isatty = write
    encoding = errors = property(write)


sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = Endless()
sys.excepthook = sys.unraisablehook = sys.displayhook = Endless().write
print("never seen")
