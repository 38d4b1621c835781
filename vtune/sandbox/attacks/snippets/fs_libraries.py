# MUST NOT: write or read host files through the picture libraries
# CHECK: canary unchanged; token absent
# SOFT: 2
# LAYER: landlock

import shutil

pixels = np.zeros((4, 4, 3), np.uint8)
trials = {
    "cv2.imwrite": lambda: cv2.imwrite("{{CANARY}}/secret.png", pixels),
    "Image.save": lambda: Image.fromarray(pixels).save("{{CANARY}}/secret.png"),
    "np.save": lambda: np.save("{{CANARY}}/victim.txt", pixels),
    "tofile": lambda: pixels.tofile("{{CANARY}}/victim.txt"),
    "memmap": lambda: np.memmap("{{CANARY}}/victim.txt", np.uint8, "r+")[:],
    "VideoWriter": lambda: cv2.VideoWriter("{{CANARY}}/a.avi", 0x47504A4D, 1, (4, 4)).write(pixels),
    "FileStorage": lambda: cv2.FileStorage("{{CANARY}}/victim.txt", 1).write("a", 1),
    "copy out": lambda: shutil.copyfile(image_path, "{{CANARY}}/victim.txt"),
    "copy in": lambda: shutil.copyfile("{{CANARY}}/secret.png", "stolen.png"),
    "Image.open": lambda: Image.open("{{CANARY}}/secret.png").save("stolen_1.png"),
    "imread": lambda: cv2.imwrite("stolen_2.png", cv2.imread("{{CANARY}}/secret.png")),
    "fromfile": lambda: print(np.fromfile("{{CANARY}}/secret.txt", np.uint8).tobytes()),
    "loadtxt": lambda: print(np.loadtxt("{{CANARY}}/secret.txt", dtype=str)),
}
for what, trial in trials.items():
    try:
        trial()
        print("returned", what)
    except Exception as error:
        print("refused", what, type(error).__name__)
