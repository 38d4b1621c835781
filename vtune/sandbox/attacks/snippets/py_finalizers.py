# MUST NOT: run without end from an object's destruction, where exceptions are swallowed
# CHECK: killed or timeout within soft+grace; next call answered
# SOFT: 1
# LAYER: timer


class Endless:
    def __del__(self):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                Endless()


keep = Endless()
del keep
