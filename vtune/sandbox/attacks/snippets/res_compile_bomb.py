# MUST NOT: let a short source grow into an enormous program or constant
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: timer


for source in ("((1 << 63,) * 200) * 200", "'x' * 10**10", "[0] * 10**9", "2 ** 10**6 ** 2", "9**9**9"):
    try:
        print(len(repr(eval(compile(source, "bomb", "eval")))))
    except (MemoryError, ValueError, OverflowError, RecursionError) as error:
        print("refused", type(error).__name__)
