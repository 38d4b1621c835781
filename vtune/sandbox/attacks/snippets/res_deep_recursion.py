# MUST NOT: run over the end of the stack
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: rlimits

import sys

sys.setrecursionlimit(2**31 - 1)


def down(value):
    return down([value]) + 1


print(down(0))
