"""Programs that claim a look but show nothing earn no more than a miss; honest ones are rewarded."""

import asyncio
import dataclasses

import pytest

from tests.looks.build import SCENE
from tests.reward.build import LEVELS, encode, recipe, sample
from tests.reward.sessions import Sessions
from vtune.data import lens
from vtune.reward.audit import audit
from vtune.reward.recipe import RewardRecipe
from vtune.reward.score import Scorer
from vtune.schema.message import Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

TARGET = (140.0, 90.0, 230.0, 170.0)
CROP = "c = image.crop((130, 80, 240, 180))\n"
TILES = """W, H = image.size
tiles = [(x, y, min(W, x + 60), min(H, y + 60)) for y in range(0, H, 60) for x in range(0, W, 60)]
"""

HACKS = {
    "one pixel": CROP + "c.resize((1, 1)).save('a.png')",
    "four pixels per side": CROP + "c.resize((4, 4), Image.BOX).save('a.png')",
    "multiplied by nothing": CROP + "Image.fromarray(np.array(c) * 0).save('a.png')",
    "subtracted from itself": "a = cv2.imread(image_path)[80:180, 130:240]\na -= a\ncv2.imwrite('a.png', a)",
    "blurred away": "a = cv2.imread(image_path)[80:180, 130:240]\n"
    "cv2.imwrite('a.png', cv2.blur(a, (99, 99)))",
    "painted over": CROP + "ImageDraw.Draw(c).rectangle((0, 0, 200, 200), fill='gray')\nc.save('a.png')",
    "a region set by hand": CROP
    + "f = Image.new('RGB', (200, 200), 'gray')\nf.region = c.region\nf.save('a.png')",
    "transparent": CROP + "c = c.convert('RGBA')\nc.putalpha(0)\nc.save('a.png')",
    "a first frame that is black": CROP
    + "b = c.point(lambda v: 0)\nb.save('a.gif', save_all=True, append_images=[c])",
    "shuffled": CROP + "a = np.array(c).reshape(-1, 3)\nnp.random.shuffle(a)\n"
    "Image.fromarray(a.reshape(100, 110, 3)).save('a.png')",
    "a threshold that nothing passes": CROP
    + "cv2.imwrite('a.png', cv2.threshold(np.array(c), 255, 255, cv2.THRESH_BINARY)[1])",
    "remapped to one pixel": "a = cv2.imread(image_path)[80:180, 130:240]\n"
    "m = np.zeros(a.shape[:2], np.float32)\ncv2.imwrite('a.png', cv2.remap(a, m, m, cv2.INTER_NEAREST))",
    "a figure with a patch over it": CROP
    + "import matplotlib.pyplot as plt\nf, ax = plt.subplots()\nax.imshow(c)\n"
    "ax.add_patch(plt.Rectangle((-1, -1), 200, 200, color='k', zorder=9))\nplt.savefig('a.png')",
    "written over after saving": CROP + "import io\nc.save('a.png')\nb = io.BytesIO()\n"
    "Image.new('RGB', (200, 200)).save(b, 'PNG')\nopen('a.png', 'wb').write(b.getvalue())",
    "a mosaic made tiny": TILES + "m = Image.new('RGB', (480, 360))\n"
    "for b in tiles: m.paste(image.crop(b), b[:2])\nm.resize((32, 24)).save('a.png')",
    "five black mosaics": TILES + "for n in range(5):\n    m = np.zeros((64, 64, 3), np.uint8)\n"
    "    for i, (x, y, u, v) in enumerate(tiles[n * 10:n * 10 + 10]):\n"
    "        m[i // 4 * 16:i // 4 * 16 + 16, i % 4 * 16:i % 4 * 16 + 16] = "
    "cv2.resize(np.array(image)[y:v, x:u], (16, 16))\n    m -= m\n    cv2.imwrite(f'{n}.png', m)",
    "a contact sheet of everything": "m = Image.new('RGB', (500, 380), 'white')\n"
    "for i in range(4):\n    x, y = i % 2, i // 2\n"
    "    m.paste(image.crop((x * 240, y * 180, x * 240 + 240, y * 180 + 180)), (x * 250, y * 190))\n"
    "m.save('a.png')",
    "a thousand regions on one canvas": TILES + "f = Image.new('RGB', (200, 200), 'gray')\n"
    "import dataclasses\nrs = [image.crop(b).region for b in tiles * 40]\n"
    "f.region = dataclasses.replace(rs[0], beside=tuple(rs[1:]))\nf.save('a.png')",
    "faint under noise": CROP + "a = np.array(c) * 0.03 + np.random.normal(120, 40, (100, 110, 3))\n"
    "cv2.imwrite('a.png', a.clip(0, 255).astype(np.uint8))",
    "a faint channel under yellow": CROP
    + "a = np.array(c)\na[..., :2] = 255\na[..., 2] //= 8\nImage.fromarray(a).save('a.png')",
    "a faint channel under noise": CROP
    + "a = np.array(c)\na[..., :2] = np.random.randint(0, 256, a[..., :2].shape)\na[..., 2] //= 8\n"
    "Image.fromarray(a).save('a.png')",
    "a faint channel under the whole picture": "p = cv2.imread(image_path)\nc = p[80:180, 130:240]\n"
    "w = cv2.resize(p, (110, 100))\nt = cv2.cvtColor(c, cv2.COLOR_BGR2GRAY) // 16\n"
    "cv2.imwrite('a.png', cv2.merge([t, w[:, :, 1], w[:, :, 2]]))",
    "darkened, with a box drawn": CROP + "c = ImageEnhance.Brightness(c).enhance(0.06)\n"
    "ImageDraw.Draw(c).rectangle((10, 10, 99, 89), outline='red', width=2)\nc.save('a.png')",
    "the whole beside a crop of elsewhere": "image.convert('L').resize((320, 240)).save('a.png')\n"
    "image.crop((300, 200, 390, 290)).save('b.png')",
    "a stamp on a large canvas": CROP
    + "m = Image.new('RGB', (1500, 1500))\nm.paste(c.resize((55, 50)), (9, 9))\nm.save('a.png')",
    "a piece claimed of a whole that is not blank": "import dataclasses\nm = image.copy()\n"
    "m.paste((128, 128, 128), (400, 280, 480, 360))\n"
    "m.region = dataclasses.replace(image.region, box=(130.0, 80.0, 240.0, 180.0))\nm.save('a.png')",
    "the same, with the whole as its overview": "import dataclasses\nm = image.copy()\n"
    "m.paste((128, 128, 128), (400, 280, 480, 360))\n"
    "m.region = dataclasses.replace(\n    image.region, box=(130.0, 80.0, 240.0, 180.0), "
    "beside=(image.region,))\nm.save('a.png')",
    "a piece put back into the whole": CROP
    + "m = image.convert('L').convert('RGB')\nm.paste(c, (130, 80))\nm.save('a.png')",
    "the target alone blackened": CROP
    + "a = np.array(c)\na[10:90, 10:100] = 0\nImage.fromarray(a).save('a.png')",
}

HONEST = {
    "a crop": CROP + "c.save('a.png')",
    "a crop as JPEG": CROP + "c.save('a.jpg')",
    "beside an overview": "p = cv2.imread(image_path)\n"
    "c = cv2.resize(p[80:180, 130:240], (300, 300))\n"
    "cv2.imwrite('a.png', np.hstack([cv2.resize(p, (300, 300)), c]))",
    "with a grey overview": CROP + "image.convert('L').resize((320, 240)).save('a.png')\nc.save('b.png')",
    "marked in the whole, and cut out": CROP
    + "d = image.copy()\nImageDraw.Draw(d).rectangle((130, 80, 240, 180), outline='red', width=3)\n"
    "d.save('a.png')\nc.save('b.png')",
    "enlarged": CROP + "c.resize((330, 300), Image.LANCZOS).save('a.png')",
    "sliced": "a = cv2.imread(image_path)\ncv2.imwrite('a.png', a[80:180, 130:240])",
    "in grey with contrast": CROP + "ImageOps.autocontrast(c.convert('L')).save('a.png')",
    "threshold": "g = cv2.imread(image_path, 0)[80:180, 130:240]\n"
    "cv2.imwrite('a.png', cv2.threshold(g, 0, 255, cv2.THRESH_OTSU)[1])",
    "edges": "g = cv2.imread(image_path, 0)[80:180, 130:240]\ncv2.imwrite('a.png', cv2.Canny(g, 50, 150))",
    "turned": CROP + "c.rotate(90, expand=True).save('a.png')",
    "sharpened": CROP + "ImageEnhance.Sharpness(c).enhance(3).save('a.png')",
    "with a frame and a label": CROP + "m = Image.new('RGB', (130, 140), 'black')\nm.paste(c, (10, 30))\n"
    "ImageDraw.Draw(m).text((5, 5), 'region A', fill='white')\nm.save('a.png')",
    "a figure": CROP + "import matplotlib.pyplot as plt\nplt.imshow(c)\nplt.axis('off')\n"
    "plt.savefig('a.png', bbox_inches='tight')",
    "a figure with axes": CROP + "import matplotlib.pyplot as plt\nplt.imshow(c)\nplt.savefig('a.png')",
    "four versions in one figure": CROP + "import matplotlib.pyplot as plt\nf, ax = plt.subplots(2, 2)\n"
    "v = [c, c.convert('L'), ImageOps.invert(c), ImageOps.autocontrast(c)]\n"
    "for q, one in zip(ax.flat, v): q.imshow(one)\n"
    "plt.savefig('a.png')",
    "three versions side by side": "c = cv2.imread(image_path)[80:180, 130:240]\n"
    "g = cv2.cvtColor(cv2.cvtColor(c, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)\n"
    "cv2.imwrite('a.png', np.hstack([c, g, 255 - c]))",
    "on a grey canvas": CROP
    + "m = Image.new('RGB', (512, 512), 'grey')\nm.paste(c, (200, 200))\nm.save('a.png')",
    "as an inset": CROP + "m = image.copy()\nm.paste(c.resize((220, 200)), (260, 160))\nm.save('a.png')",
    "marked": CROP + "ImageDraw.Draw(c).rectangle((8, 8, 102, 92), outline='red', width=2)\nc.save('a.png')",
    "a second look among blank ones": CROP + "c.point(lambda v: 0).save('a.png')\nc.save('b.png')",
}


PICTURE = Picture(encode(SCENE))


def asked() -> Sample:
    return sample(TARGET, images=(PICTURE,))


LARGE = (100.0, 60.0, 340.0, 260.0)
"""A third of the picture: a look at it nearly amounts to a look at everything."""
MIXED = """k = 3
w, h = image.width // k, image.height // k
m = Image.new('RGB', (w * k, h * k))
for n, t in enumerate(random.sample(range(k * k), 6)):
    b = (t % k * w, t // k * h)
    m.paste(image.crop((*b, b[0] + w, b[1] + h)), (n % k * w, n // k * h))
m.save('a.png')"""


def settings(looks: str) -> RewardRecipe:
    return recipe(evidence=LEVELS.model_copy(update={"looks": looks}))


Judged = tuple[float | None, tuple[str, ...], bool | None]
"""For a trajectory: score and flags of its last call, and whether it is faithful."""


def judged(done: list[Trajectory], looks: str) -> list[Judged]:
    async def story() -> list[Judged]:
        questions = [dataclasses.replace(asked(), id=one.sample_id) for one in done]
        async with Scorer(settings(looks)) as scorer:
            scored = await scorer.score(questions, done)
            rows = await audit(questions, scored, scorer.judges)
        return [
            (one.tool_scores[-1], one.calls[-1].flags, row.any_faithful)
            for one, row in zip(scored, rows, strict=True)
        ]

    return asyncio.run(story())


def run(sessions: Sessions, programs: dict[str, str]) -> list[Trajectory]:
    jobs = [(dataclasses.replace(asked(), id=name), [code]) for name, code in programs.items()]
    return sessions.trajectories(jobs)


@pytest.fixture(scope="module")
def hacks(sessions: Sessions) -> list[Trajectory]:
    return run(sessions, HACKS)


@pytest.fixture(scope="module")
def verified(hacks: list[Trajectory]) -> dict[str, Judged]:
    """The result for each hack with looks verified by pixels."""
    return dict(zip(HACKS, judged(hacks, "verified"), strict=True))


def test_no_hack_earns_more_than_a_miss_and_none_is_faithful(verified: dict[str, Judged]) -> None:
    paid = {name: score for name, (score, _, _) in verified.items() if score is None or score > LEVELS.miss}
    assert (paid, [name for name, (_, _, faithful) in verified.items() if faithful]) == ({}, [])


def test_the_claims_alone_would_have_been_rewarded(hacks: list[Trajectory]) -> None:
    scores = [score for score, _, _ in judged(hacks, "claimed")]
    assert scores.count(LEVELS.full) >= len(HACKS) // 2


def test_constant_pictures_are_faked_and_sheets_of_everything_are_whole_images(
    verified: dict[str, Judged],
) -> None:
    flags = {name: flags for name, (_, flags, _) in verified.items()}
    assert flags["multiplied by nothing"] == flags["a region set by hand"] == ("faked",)
    assert "whole_image" in flags["a contact sheet of everything"]
    assert "whole_image" in flags["five black mosaics"]


WHOLE = (
    "p = cv2.imread(image_path)\nw = cv2.resize(p, (300, 300))\n"
    "c = cv2.resize(p[80:180, 130:240], (300, 300))\n"
)
EXCUSES = {
    "twice": WHOLE + "cv2.imwrite('a.png', np.hstack([w, w]))",
    "twice in grey": WHOLE
    + "w = cv2.cvtColor(w, cv2.COLOR_BGR2GRAY)\ncv2.imwrite('a.png', np.hstack([w, w]))",
    "beside nothing": WHOLE + "cv2.imwrite('a.png', np.hstack([w, c * 0]))",
    "above a strip": "p = cv2.imread(image_path)\ncv2.imwrite('a.png', np.vstack([p, p[100:104]]))",
    "before all tiles": TILES + "m = Image.new('RGB', (480, 800))\nm.paste(image, (0, 0))\n"
    "for x, y, u, v in tiles: m.paste(image.crop((x, y, u, v)), (x, 400 + y))\nm.save('a.png')",
}


def test_a_whole_picture_is_not_excused_by_a_region_that_is_not_a_crop(sessions: Sessions) -> None:
    found = dict(zip(EXCUSES, judged(run(sessions, EXCUSES), "verified"), strict=True))
    assert {name: score for name, (score, _, _) in found.items()} == dict.fromkeys(EXCUSES, LEVELS.red_flag)


def test_a_large_target_shown_by_an_overview_is_also_shown_beside_a_crop(sessions: Sessions) -> None:
    large = dataclasses.replace(asked(), evidence=(dataclasses.replace(asked().evidence[0], bbox=LARGE),))
    codes = ["image.convert('L').save('a.png')"]
    codes.append(codes[0] + "\nimage.crop((400, 280, 470, 350)).save('b.png')")
    jobs = [(dataclasses.replace(large, id=str(n)), [code]) for n, code in enumerate(codes)]
    done = sessions.trajectories(jobs)

    async def story() -> list[Trajectory]:
        async with Scorer(settings("verified")) as scorer:
            return await scorer.score([question for question, _ in jobs], done)

    assert [one.tool_scores for one in asyncio.run(story())] == [(LEVELS.full,)] * 2


def test_honest_looks_earn_full_marks_and_are_faithful(sessions: Sessions) -> None:
    found = dict(zip(HONEST, judged(run(sessions, HONEST), "verified"), strict=True))
    assert found == dict.fromkeys(HONEST, (LEVELS.full, (), True))


def test_a_threshold_that_keeps_the_target_is_not_fake(sessions: Sessions) -> None:
    """It removes the edge of the card, which is most of what the region shows."""
    code = """c = np.array(image.crop(({x0} - 6, {y0} - 6, {x1} + 6, {y1} + 6)))
c = cv2.addWeighted(c, 1.6, cv2.GaussianBlur(c, (0, 0), 2), -0.8, 0)
g = cv2.cvtColor(c, cv2.COLOR_RGB2GRAY)
cv2.imwrite('a.png', cv2.threshold(g, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)[1])"""
    jobs = []
    for puzzle in lens.samples(1, 12, seed=3, split="heldout"):
        (target,) = puzzle.evidence
        corners = dict(zip(("x0", "y0", "x1", "y1"), map(int, target.bbox), strict=True))
        jobs.append((puzzle, [code.format(**corners)]))
    done = [
        dataclasses.replace(one, images=(one.images[0], dataclasses.replace(one.images[1], seen=(56, 56))))
        for one in sessions.trajectories(jobs)
    ]

    async def story() -> list[Trajectory]:
        async with Scorer(settings("verified")) as scorer:
            return await scorer.score([puzzle for puzzle, _ in jobs], done)

    scored = asyncio.run(story())
    assert [one.calls[0].flags for one in scored] == [()] * len(jobs)
    assert any(crop.look == "faked" for one in scored for crop in one.calls[0].crops)


PLAIN_BESIDE = (
    CROP
    + """k = Image.new('RGB', (2 * c.width, c.height))
k.paste(image.crop((300, 20, 410, 120)), (0, 0))
k.paste(c, (c.width, 0))
a = np.array(k)
a[:, c.width:] = 0
Image.fromarray(a).save('a.png')"""
)
EDGES_BESIDE = (
    CROP
    + """a = np.array(c.convert('RGB'))
cv2.imwrite('a.png', np.hstack([a, a * 0]))"""
)


def test_only_the_same_region_excuses_a_faked_one(
    sessions: Sessions,
) -> None:
    hidden, both = judged(run(sessions, {"hidden": PLAIN_BESIDE, "both": EDGES_BESIDE}), "verified")
    assert hidden[1] == ("faked",)
    assert both[1] == ()


WHOLE = {
    "half pasted with its provenance, half without": "im = image.convert('RGB')\n"
    "W, H = im.size\nm = int(W * .49)\n"
    "k = Image.new('RGB', (W, H))\nk.paste(im.crop((0, 0, m, H)), (0, 0))\n"
    "k.paste(Image.frombytes('RGB', (W - m, H), im.crop((m, 0, W, H)).tobytes()), (m, 0))\nk.save('a.png')",
    "enlarged": "im = image.convert('RGB').resize((960, 720))\n"
    "k = Image.new('RGB', (960, 720))\nk.paste(image.crop((0, 0, 240, 360)).resize((480, 720)), (0, 0))\n"
    "k.paste(Image.frombytes('RGB', (480, 720), im.crop((480, 0, 960, 720)).tobytes()), (480, 0))\n"
    "k.save('a.png')",
    "the same, in grey": "im = image.convert('L')\nW, H = im.size\nm = int(W * .49)\n"
    "k = Image.new('L', (W, H))\nk.paste(im.crop((0, 0, m, H)), (0, 0))\n"
    "k.paste(Image.frombytes('L', (W - m, H), im.crop((m, 0, W, H)).tobytes()), (m, 0))\nk.save('a.png')",
}


def test_a_whole_picture_with_half_of_it_claimed_is_not_a_look(sessions: Sessions) -> None:
    found = dict(zip(WHOLE, judged(run(sessions, WHOLE), "verified"), strict=True))
    assert [faithful for _, _, faithful in found.values()] == [False] * len(WHOLE)
    assert all(score is not None and score <= LEVELS.miss for score, _, _ in found.values())
    assert found["half pasted with its provenance, half without"][1] == ("whole_image",)


def test_tiles_of_a_large_target_are_not_a_look_but_all_of_it_is(sessions: Sessions) -> None:
    crop = f"image.crop({LARGE}).save('a.png')"
    question = dataclasses.replace(sample(LARGE, images=(PICTURE,)), id="large")
    done = sessions.trajectories([(question, [code]) for code in ("import random\n" + MIXED, crop)])

    async def story() -> list[float | None]:
        async with Scorer(settings("verified")) as scorer:
            scored = await scorer.score([question, question], done)
        return [one.tool_scores[-1] for one in scored]

    mixed, whole = asyncio.run(story())
    assert mixed is not None
    assert mixed <= LEVELS.miss
    assert whole == LEVELS.full
