# MUST NOT: make four equal to five
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: protocol

import ctypes

for number in (4, 10, 0, 1):
    ctypes.c_int.from_address(id(number) + 24).value = 5
