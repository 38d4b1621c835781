# MUST NOT: let the destruction or the printing of a nested object overrun the stack
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: rlimits


value = None
for _ in range(2_000_000):
    value = [value]
del value
value = None
for _ in range(500_000):
    value = (value,)
print(repr(value)[:10])
