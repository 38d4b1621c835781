# MUST NOT: take ten gigabytes of memory
# CHECK: refused; host memory flat
# SOFT: 4
# LAYER: rlimits
# WEAK-OK: 0


held = []
try:
    held.append(np.ones(10 << 30, np.uint8))
    print("DONE", held[-1].nbytes)
except MemoryError as error:
    print("refused", error)
taken = 0
try:
    while taken < 10 << 30:
        held.append(bytearray(b"x") * (32 << 20))
        taken += 32 << 20
    print("DONE", taken >> 20, "MiB")
except MemoryError:
    held.clear()
    print("refused after", taken >> 20, "MiB")
