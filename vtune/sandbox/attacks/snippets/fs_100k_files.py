# MUST NOT: make files without end
# CHECK: killed; host disk flat
# SOFT: 6
# LAYER: quota


for number in range(100_000):
    open(f"f{number}", "w").close()
print("DONE 100000 files")
