# MUST NOT: return more pictures than anybody will look at
# CHECK: broker alive; next call answered
# SOFT: 6
# LAYER: collector


tiny = Image.new("RGB", (4, 4))
for number in range(1500):
    tiny.save(f"p{number}.png")
print("saved")
