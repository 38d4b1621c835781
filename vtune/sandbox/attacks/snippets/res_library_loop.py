# MUST NOT: stay inside one long call of a picture library
# CHECK: killed or timeout within soft+grace
# SOFT: 1
# LAYER: timer


noise = np.random.randint(0, 255, (4000, 4000), np.uint8)
while True:
    cv2.bilateralFilter(noise, 301, 75, 75)
    np.linalg.svd(noise.astype(np.float64))
