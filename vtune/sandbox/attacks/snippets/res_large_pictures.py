# MUST NOT: keep the trainer busy with honest pictures just below every limit
# CHECK: host memory flat; next call answered
# SOFT: 8
# LAYER: collector


for number in range(6):
    Image.new("RGB", (7000, 7000), (number, 0, 0)).save(f"large{number}.png", compress_level=1)
print("saved")
