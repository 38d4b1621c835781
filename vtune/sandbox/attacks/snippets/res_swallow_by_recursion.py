# MUST NOT: catch the time limit anew on every level
# CHECK: killed or timeout within soft+grace
# SOFT: 1
# LAYER: timer


def again():
    try:
        while True:
            pass
    except BaseException:
        pass
    again()


again()
