# MUST NOT: outlive the time limit by catching what interrupts the code
# CHECK: killed or timeout within soft+grace
# SOFT: 1
# LAYER: timer


def forever():
    while True:
        try:
            while True:
                math.sqrt(2)
        except BaseException:
            print("caught")


try:
    forever()
finally:
    forever()
