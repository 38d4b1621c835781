# MUST NOT: leave by exceptions that the runner does not expect
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: protocol


class Code:
    def __int__(self):
        while True:
            pass

    __str__ = __repr__ = __index__ = __int__


raise SystemExit(Code())
