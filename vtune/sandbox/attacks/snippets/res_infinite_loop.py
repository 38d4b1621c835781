# MUST NOT: run without end
# CHECK: killed or timeout within soft+grace
# SOFT: 1
# LAYER: timer


print("before")
while True:
    pass
