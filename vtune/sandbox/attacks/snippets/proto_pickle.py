# MUST NOT: have the trainer run a pickle
# CHECK: canary unchanged; next call answered
# SOFT: 2
# LAYER: collector

import os
import pickle


class Bomb:
    def __reduce__(self):
        return os.system, ("echo gone > {{CANARY}}/victim.txt",)


content = pickle.dumps(Bomb())
for name in ("a.pkl", "b.png", "c.npy", "d.pt", "e.npz"):
    open(name, "wb").write(content)
np.save("f.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
