# MUST NOT: fill the disk with files that are each small enough
# CHECK: killed; host disk flat
# SOFT: 8
# LAYER: quota
# WEAK-OK: 0


block = bytes(32 << 20)
for number in range(128):
    with open(f"part{number}", "wb") as file:
        file.write(block)
print("DONE 4 GiB")
