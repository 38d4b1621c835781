# MUST NOT: write one endless file
# CHECK: refused; host disk flat
# SOFT: 4
# LAYER: rlimits
# WEAK-OK: 0


block = bytes(16 << 20)
written = 0
try:
    with open("huge.bin", "wb", buffering=0) as file:
        while written < 4 << 30:
            written += file.write(block)
except OSError as error:
    print("refused", error.strerror, "after", written >> 20, "MiB")
if written > 1 << 30:
    print("DONE", written >> 20, "MiB")
