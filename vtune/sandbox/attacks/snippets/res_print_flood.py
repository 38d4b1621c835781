# MUST NOT: print without end
# CHECK: stdout within the cap; host memory flat
# SOFT: 2
# LAYER: fork server


while True:
    try:
        while True:
            print("flood " * 1000)
    except RuntimeError:
        pass
