# MUST NOT: leave names behind that the next call trips over
# CHECK: next call answered
# SOFT: 2
# LAYER: protocol


class Trap:
    def __getattribute__(self, name):
        while True:
            pass

    __call__ = __iter__ = __len__ = __bool__ = __eq__ = __hash__ = __getattribute__


image_name = image_path
for name in ("image", "images", "image_paths", "np", "cv2", "Image", "math", "random", "os", "__name__"):
    globals()[name] = Trap()
for name in ("__loader__", "__spec__", "__file__", "__doc__", "__annotations__"):
    globals()[name] = Trap()
