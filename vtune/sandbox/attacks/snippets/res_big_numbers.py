# MUST NOT: stay inside one long multiplication
# CHECK: killed or timeout within soft+grace
# SOFT: 1
# LAYER: timer


number = 3 ** (10**8)
print(len(str(number % 10**9)))
