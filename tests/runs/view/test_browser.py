"""The viewer in a real Chromium: `make browser` installs the requirements; skipped without them."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import uvicorn

from tests.conftest import ROOT
from tests.runs.sweep.folders import make_sweep
from tests.runs.view.test_pairs import AFTER, BEFORE
from tests.runs.view.test_show import hostile
from tests.runs.view.test_tokens import write_tokenizer
from tests.schema.records import SAMPLE
from tests.view.hostile import STEERING, TEXT, make_hostile_run
from tests.view.runs import LOOKED, MISSED, make_run
from vtune.config import dump_recipe, find, load_recipe
from vtune.runs.serve.listening import listen, url_of
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.runs.view.opened import Opened
from vtune.runs.view.page import write_page
from vtune.runs.view.serving import HOST, app_of
from vtune.schema.labels import read_labels
from vtune.schema.message import Message
from vtune.schema.parquet import write_samples, write_trajectories
from vtune.schema.trajectory import Trajectory
from vtune.view.place import find_all, find_places
from vtune.view.query import parse_query, select

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: `make browser`")
WAITS = 300_000
"""Milliseconds to wait for something on a page: many times what a busy machine needs, but not half an hour
for a text that never appears."""

CHROMIUM = shutil.which("chromium") or ""
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no chromium: `make browser`")

TOKEN = "the-token"
SHOTS = os.environ.get("VTUNE_SHOTS")
"""A folder for screenshots of the pages."""


AXE = ROOT / ".venv" / "browser" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_run(tmp_path_factory.mktemp("runs") / "run", {0: [LOOKED, MISSED], 4: [hostile(), LOOKED]})
    values = ((at, "lens" if at % 2 else "charts", at / 40) for at in range(40))
    lines = [
        {"step": at // 2, "source": source, "reward": value, "accuracy": value, "seconds_rollout": 3 - value}
        for at, source, value in values
    ]
    (made / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_tokenizer(made / "checkpoints" / "newest")
    funnel = {"lens": {"before": 8, "valid": 6, "after": 2}, "all": {"before": 8, "valid": 6, "after": 2}}
    (made.parent / "curation.json").write_text(json.dumps({"result": {"funnel": funnel}}))
    (made / "recipe.yaml").write_text(f"steps: 2\ndata: [{made.parent / 'samples.parquet'}]\n")
    return made


@pytest.fixture(scope="module")
def address(run: Path) -> Iterator[str]:
    with served(run) as url:
        yield url


@contextmanager
def served(run: Path) -> Iterator[str]:
    """`vtune view` in a separate process; yields the address that it prints."""
    words = [sys.executable, "-m", "vtune.cli.main", "view", str(run), "--port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        lines = iter(server.stdout.readline, "}\n")
        try:
            yield json.loads("".join(lines) + "}")["url"]
        finally:  # so that a failed test does not wait for ever
            server.terminate()
        assert server.wait() == 0


@contextmanager
def served_here(run: Path) -> Iterator[str]:
    """What `vtune view` serves, from a thread: a separate process would take seconds to import."""
    opened = [Opened(place, ()) for place in find_all([run])]
    app = app_of(opened, TOKEN)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none"))
    with listen(HOST, 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"{url_of(listener)}/{TOKEN}/"
        finally:
            server.should_exit = True
            thread.join()
    for one in opened:
        one.index.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright.expect.set_options(timeout=WAITS)  # the default of five seconds is too short on a busy machine
    with playwright.sync_playwright() as started:
        # Tests may run as root, and then Chromium's own sandbox does not start.
        yield started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


class Watched:
    """A page, with its errors and requests."""

    def __init__(self, browser: Any, width: int = 1280, scheme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.set_default_timeout(WAITS)
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.page.on(
            "console", lambda said: self.problems.append(said.text) if said.type == "error" else None
        )
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.problems.append("a dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def closed(self, address: str) -> None:
        self.page.close()
        assert self.problems == []
        assert [url for url in self.asked if not url.startswith(address)] == []


def test_a_run_can_be_opened_filtered_stepped_through_and_labelled(
    browser: Any, address: str, run: Path
) -> None:
    one = Watched(browser)
    page = one.page
    page.goto(address)
    page.wait_for_selector("h2:has-text('what changed')")
    page.wait_for_selector("text=of 1 samples that were scored several times, 0 are always right, 1 some")
    page.wait_for_selector("h2:has-text('calls by tool')")
    page.click("text=4 trajectories")
    page.wait_for_selector("text=4 of 4")
    page.fill("#query", "source:lens rollout:0,1 step:0")
    page.press("#query", "Enter")
    page.wait_for_selector("text=2 of 4")
    page.click("text=step-000000/0")
    page.wait_for_selector("text=call 0: python")
    assert page.locator(".crop rect").count() >= 2  # in the gallery, and next to what it showed
    page.keyboard.press("j")
    page.wait_for_selector("h1:has-text('step-000000/1')")
    assert page.url.endswith("#/0/step-000000/1?q=source%3Alens%20rollout%3A0%2C1%20step%3A0")
    page.reload()
    page.wait_for_selector("h1:has-text('step-000000/1')")
    page.keyboard.press("k")
    page.wait_for_selector("h1:has-text('step-000000/0')")
    page.click("button:has-text('box wrong')")
    page.wait_for_selector("button[aria-pressed=true]:has-text('box wrong')")
    assert read_labels(run / "labels.jsonl")["step-000000/0"].label == "box wrong"
    playwright.expect(page.locator("#status")).to_contain_text(f"labelled: box wrong, in {run}/labels.jsonl")
    page.click("text=side by side")
    page.wait_for_selector(".frame >> nth=1")
    page.keyboard.press("u")
    page.keyboard.press("u")  # the first page is still being fetched, and must not come back
    page.wait_for_selector("td:has-text('box wrong')")
    one.closed(address)


def read_zoom_and_save(page: Any, folder: Path) -> None:
    """Read a curve with keys, zoom, filter a source, export; all of it is reflected in the address."""
    reward = page.locator(".charted", has=page.locator("b:text-is('reward')"))
    reward.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    playwright.expect(reward.locator(".tip b")).to_have_text("step 0")
    page.keyboard.press("ArrowRight")
    playwright.expect(reward.locator(".tip")).to_contain_text("lens 0.075")
    page.keyboard.press("+")
    page.wait_for_selector("button:has-text('show all')")
    page.click("label:has-text('charts')")
    playwright.expect(reward.locator(".line")).to_have_count(1)
    assert "from=0&to=6&sources=lens" in page.url
    for kind, begin in (("CSV", "line,step,value,low,high"), ("SVG", "<svg")):
        with page.expect_download() as download:
            reward.locator(f"button:text-is('{kind}')").click()
        download.value.save_as(folder / kind)
        assert (folder / kind).read_text().startswith(begin)
    page.reload()
    page.wait_for_selector("button:has-text('steps 0 to 6')")


def test_curves_can_be_read_zoomed_and_exported(browser: Any, address: str, tmp_path: Path) -> None:
    one = Watched(browser)
    one.page.goto(f"{address}#/run/0")
    one.page.wait_for_selector(".charted")
    read_zoom_and_save(one.page, tmp_path)
    one.page.click("summary:has-text('curation behind the data')")
    bars = one.page.locator(".bar .part")
    drawn = [bars.nth(nth).get_attribute("d") for nth in range(3)]
    assert drawn == ["M0 3H100.0", "M0 3H75.0", "M0 3H25.0"]
    one.closed(address)


def test_a_page_works_as_a_file(browser: Any, run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", {0: [MISSED]})
    (other / "labels.jsonl").write_text("")
    file = tmp_path / "page.html"
    write_page([run, other], file)
    one = Watched(browser)
    page = one.page
    page.goto(f"file://{file}")
    page.wait_for_selector("text=5 of 5 trajectories")
    assert page.locator(".frame .crop rect").count() >= 2
    for box in ("run", "other"):
        page.click(f"[aria-label='compare {box}']")
    page.click("text=compare the ticked")
    page.wait_for_selector("h2:has-text('what differs: recipe')")
    page.goto(f"file://{file}#/run/0")
    page.wait_for_selector(".charted")
    read_zoom_and_save(page, tmp_path)
    page.goto(f"file://{file}#/0/step-000004/0")
    page.wait_for_selector("text=alert(1)")
    assert page.locator("button:has-text('box wrong')").count() == 0
    one.closed(f"file://{file}")


def detection_run(folder: Path) -> Path:
    """A run with a detection: two boxes are asked for, one is found, and the other is in the wrong place."""
    truth = [{"label": "cup", "bbox_2d": [4, 4, 24, 24]}, {"label": "pen", "bbox_2d": [40, 8, 60, 40]}]
    answer = [{"label": "cup", "bbox_2d": [4, 4, 24, 20]}, {"label": "pen", "bbox_2d": [2, 40, 12, 46]}]
    sample = replace(SAMPLE, id="lens/7", images=LOOKED.images[:1], evidence=(), choices=(),
                     ground_truth=json.dumps(truth), verifier="detection", verifier_parm={})  # fmt: skip
    write_samples(folder.parent / "samples.parquet", [sample])
    said = Message("assistant", f"<answer>{json.dumps(answer)}</answer>")
    run = make_run(folder, {0: [replace(LOOKED, messages=(*LOOKED.messages[:-1], said))]})
    settings = [f"data=[{folder.parent / 'samples.parquet'}]", "steps=2"]
    recipe = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, settings)
    (run / "recipe.yaml").write_text(dump_recipe(recipe))
    return run


def test_boxes_of_truth_and_answer_are_drawn(browser: Any, tmp_path: Path) -> None:
    write_page([detection_run(tmp_path / "run")], tmp_path / "page.html")
    one = Watched(browser)
    page = one.page
    page.goto(f"file://{tmp_path}/page.html#/0/step-000000/0")
    page.wait_for_selector(".answer rect")
    gallery = page.get_by_label("Pictures", exact=True)
    assert (gallery.locator(".truth rect").count(), gallery.locator(".answer rect").count()) == (2, 2)
    titles = gallery.locator(".answer title").all_text_contents()
    assert titles == ["answer: cup, IoU 0.80 with cup", "answer: pen, overlaps no box"]
    named = gallery.get_by_role("img").first.get_attribute("aria-label")
    assert "ground truth: pen at 40, 8, 60, 40" in named
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/detection.png", full_page=True)
    one.closed(f"file://{tmp_path}/page.html")


def test_a_partial_page_says_what_it_is_part_of(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {0: [LOOKED] * 7, 4: [LOOKED] * 7})
    wrong = replace(MISSED, tool_scores=(1.0,))
    write_trajectories(run / "trajectories" / "step-000006.parquet", [*[LOOKED] * 8, wrong])
    lines = (json.dumps({"step": at, "source": "all", "accuracy": at / 9}) for at in range(9))
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    holds = write_page([run], tmp_path / "page.html", trajectories=3)["trajectories"]
    file = f"file://{tmp_path}/page.html"
    one = Watched(browser)
    page = one.page
    page.goto(f"{file}#/run/0")
    page.wait_for_selector(f"text=/^{holds} of 23 trajectories/")
    page.wait_for_selector("text='wrong, though a call showed one: 1'")
    accuracy = page.locator(".charted", has=page.locator("b:text-is('accuracy')")).first
    accuracy.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    playwright.expect(accuracy.locator(".tip a")).to_have_text("trajectories")
    page.keyboard.press("ArrowRight")
    playwright.expect(accuracy.locator(".tip a")).to_have_text(
        "trajectories of step 0, the nearest that this file holds"
    )
    page.goto(f"{file}#/0?q=answer%3Anowhere")
    page.wait_for_selector(f"text=0 of {holds} that this file holds, of 23")
    page.wait_for_selector("text=Nothing in this file matches.")
    one.closed(f"file://{tmp_path}")


def test_keys_step_through_any_page_of_a_list(browser: Any, tmp_path: Path) -> None:
    write_page([make_run(tmp_path / "long", {0: [LOOKED] * 130})], tmp_path / "page.html", trajectories=130)
    file = f"file://{tmp_path}/page.html"
    one = Watched(browser)
    page = one.page
    page.goto(f"{file}#/0?q=right%3Ayes&first=100")
    page.wait_for_selector("text=101 to 130 shown")
    first, second = page.locator("td:first-child a").all_inner_texts()[:2]
    page.click(f"td a:text-is('{first}')")
    page.wait_for_selector(f"h1:has-text('{first}')")
    page.keyboard.press("j")
    page.wait_for_selector(f"h1:has-text('{second}')")
    page.keyboard.press("k")
    page.wait_for_selector(f"h1:has-text('{first}')")
    page.keyboard.press("u")
    page.wait_for_selector("text=101 to 130 shown")
    page.click("text=those before")
    page.wait_for_selector("text=1 to 100 shown")
    one.closed(f"file://{tmp_path}")


def test_menu_entries_find_what_they_name(browser: Any, tmp_path: Path) -> None:
    drawn = [replace(LOOKED, source="a,b"), replace(LOOKED, source="none", answer="none"), LOOKED]
    write_page([make_run(tmp_path / "run", {0: drawn})], tmp_path / "page.html")
    one = Watched(browser)
    one.page.goto(f"file://{tmp_path}/page.html#/0")
    menu = one.page.locator("label:has-text('source') select")
    for nth, source in enumerate(("a,b", "none", "lens")):
        menu.select_option(source)
        one.page.wait_for_selector("text=/^1 of 3/")
        assert one.page.locator("td:first-child a").all_inner_texts() == [f"step-000000/{nth}"]
        playwright.expect(menu).to_have_value(source)
    for query, count in (("answer:none", 0), ('answer:"none"', 1)):
        one.page.goto(f"file://{tmp_path}/page.html#/0?q={quote(query)}")
        one.page.wait_for_selector(f"text=/^{count} of 3/")
    one.closed(f"file://{tmp_path}")


def test_a_damaged_run_does_not_hide_others(browser: Any, tmp_path: Path) -> None:
    good, bad = (make_run(tmp_path / name, {0: [LOOKED], 4: [LOOKED]}) for name in ("good", "bad"))
    (bad / "metrics.jsonl").write_text("broken\n{}\n")
    write_page([good, bad], tmp_path / "page.html")
    one = Watched(browser)
    for path in ("", "#/run/1"):
        one.page.goto(f"file://{tmp_path}/page.html{path}")
        one.page.wait_for_selector(".error:has-text('metrics.jsonl')")
    text = (tmp_path / "page.html").read_text()
    (tmp_path / "page.html").write_text(text.replace('"0/step-000004/0": {', '"gone": {'))
    one.page.goto(f"file://{tmp_path}/page.html#/film/lens%2F7")
    one.page.reload()
    one.page.wait_for_selector(".frame .error:has-text('is not in this file')")
    assert one.page.locator(".frame").count() > 1
    one.closed(f"file://{tmp_path}")


def test_an_unfinished_evaluation_says_so_beside_its_numbers(browser: Any, tmp_path: Path) -> None:
    run, half = make_run(tmp_path / "run", {0: [LOOKED]}), tmp_path / "half"
    write_trajectories(half / "trajectories" / "from-00000000.parquet", [LOOKED])
    (half / "suite.yaml").write_text((run / "recipe.yaml").read_text())
    (half / "started.json").write_text('{"total": 6}')
    write_page([run, half], tmp_path / "page.html")
    one = Watched(browser)
    for path in ("", "#/run/0", "#/run/1"):
        one.page.goto(f"file://{tmp_path}/page.html{path}")
        one.page.wait_for_selector("h1")
        said = one.page.locator("text=/not finished: 1 of 6 rollouts are generated/").count()
        assert said == (0 if one.page.locator("h1").inner_text() == "run" else 1)
    one.closed(f"file://{tmp_path}")


def test_a_file_answers_queries_like_the_viewer(browser: Any, run: Path, tmp_path: Path) -> None:
    write_page([run], tmp_path / "page.html")
    (place,) = find_places(run)
    table = Opened(place, show=False).index.table
    one = Watched(browser)
    for query in QUERIES:
        found = table["key"].take(select(table, parse_query(query), {})).to_pylist()
        one.page.goto(f"file://{tmp_path}/page.html#/0?q={quote(query)}")
        one.page.wait_for_selector(f"text=/^{len(found)} of 4/")
        assert one.page.locator("td:first-child a").all_inner_texts() == found, query
    one.closed(f"file://{tmp_path}")


QUERIES = (
    "right:no sort:-step",
    "-right:no reward>0.1",
    "reward:0.1",
    "flag:whole_image,none -step:0",
    '"red sign" sort:-reward',
    "nothing",
    "sample:lens/7 rollout>=1 sort:key",
    "call:python -call:python:ok",
    "call:none",
)


@pytest.mark.skipif(not AXE.is_file(), reason="no axe: `make browser`")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, address: str, scheme: str) -> None:
    one = Watched(browser, scheme=scheme)
    for path, wait in (
        ("#/run/0", ".charted"),
        ("#/0", "text=4 of 4"),
        ("#/0/step-000000/0", "text=call 0: python"),
        ("#/film/lens%2F7", ".frame"),
    ):
        one.page.goto(f"{address}{path}")
        one.page.wait_for_selector(wait)
        one.page.evaluate(AXE.read_text())
        # A colour scheme changes nothing but colours.
        found = one.page.evaluate(
            "axe.run()" if scheme == "light" else "axe.run({runOnly: 'color-contrast'})"
        )
        serious = [
            (fault["id"], [node["html"][:200] for node in fault["nodes"][:3]])
            for fault in found["violations"]
            if fault["impact"] in ("serious", "critical")
        ]
        assert serious == [], path
        assert found["passes"]
    one.page.close()


def test_a_hostile_trajectory_is_shown_as_text(browser: Any, address: str) -> None:
    one = Watched(browser)
    one.page.goto(f"{address}#/0/step-000004/0")
    one.page.wait_for_selector("text=alert(1)")
    assert one.page.locator("main script").count() == 0
    shown = one.page.inner_text("main")
    assert "\\u202eevil" in shown
    assert not set(shown) & {"\u202e", "\x1b"}
    one.closed(address)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_hostile_run(tmp_path_factory.mktemp("attacked"))


def test_a_hostile_run_injects_no_markup_style_script_or_address(
    browser: Any, attacked: Path, tmp_path: Path
) -> None:
    write_page([attacked], tmp_path / "page.html")
    one = Watched(browser)
    for path, wait in (
        ("#/run/0", ".charted"),
        ("#/0", "text=of 5"),
        ("#/0/step-000000/0", "text=alert(2)"),
        ("#/0/step-000000/1", "text=characters are left out"),
        ("#/0/step-000000/2", "text=cannot be shown"),
        (f"#/film/{quote(TEXT, safe='')}", ".frame"),
        ("#/pair/0:0,0:4", "table"),
    ):
        one.page.goto(f"file://{tmp_path}/page.html{path}")
        one.page.wait_for_selector(wait)
        assert one.page.locator(LIVING).count() == 0, path
        assert one.page.locator("main").is_visible()
        assert not set(one.page.inner_text("main") + one.page.title()) & STEERING
    one.closed(f"file://{tmp_path}")


LIVING = (
    ", ".join(
        f"body {kind}"
        for kind in (
            "script:not(#held, [type=module])",
            "style",
            "iframe",
            "link",
            "base",
            "meta",
            "img",
            "[onerror]",
        )
    )
    + ", main [onload], main a:not([href^='#'])"
)
"""Active elements where there should be only text."""


def test_two_checkpoints_and_their_answers_are_compared_side_by_side(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {0: BEFORE, 4: AFTER, 9: AFTER})
    write_page([run], tmp_path / "page.html")
    with served_here(run) as address:
        for start in (address, f"file://{tmp_path}/page.html"):
            one = Watched(browser)
            page = one.page
            page.goto(start)
            page.click("a:has-text('run step 0 → run step 9')")
            page.wait_for_selector("text=5 samples are scored in both: 60 % → 60 % right")
            page.wait_for_selector("h2:has-text('wrong → right: 1')")
            if start == address:
                page.select_option("select >> nth=1", "0:4")
                page.wait_for_selector("h1:has-text('run step 0 → run step 4')")
            page.click("td a:text-is('a')")
            page.wait_for_selector(".frame >> nth=1")
            assert page.locator(".frame").count() == 2
            assert page.locator(".badge:text-is('wrong')").count() == 1
            one.closed(start if start == address else f"file://{tmp_path}")


def test_the_page_of_one_run_shows_nothing_of_others(browser: Any, tmp_path: Path) -> None:
    """Films and comparisons only use what was chosen; the first page has the score of every evaluation."""
    folder = tmp_path / "runs"
    for name in ("first", "second"):
        make_run(folder / name, {0: [MISSED], 4: [LOOKED]})
    write_evaluation(folder / "reading", [replace(LOOKED, sample_id="page/1")])
    for at, name in enumerate(("first", "second", "reading")):
        settings = folder / name / ("suite.yaml" if name == "reading" else "recipe.yaml")
        os.utime(settings, (1_700_000_000 + at,) * 2)
    write_page([folder], tmp_path / "page.html")
    with served_here(folder) as address:
        for start in (address, f"file://{tmp_path}/page.html"):
            one = Watched(browser)
            page = one.page
            page.goto(start)
            row = page.locator("tr:has-text('reading')")
            playwright.expect(row.locator("td.number").first).to_have_text("0.7")
            playwright.expect(page.locator(".frame")).to_have_count(4)
            page.goto(f"{start}#/run/1")
            page.wait_for_selector("h1:has-text('second')")
            assert page.locator(".frame").count() == 2
            assert page.locator(".frame a:has-text('first')").count() == 0
            assert page.locator("p:has-text('answers compared') a").all_inner_texts() == [
                "second step 0 → second step 4"
            ]
            page.click("p:has-text('what calls showed') a")
            page.wait_for_selector("h1:has-text('Sample lens/7')")
            assert page.locator(".frame").count() == 2
            page.goto(f"{start}#/run/2")
            page.wait_for_selector("text=no question needs a look")
            assert page.locator(".frame, h2:has-text('one sample over time')").count() == 0
            assert page.locator("h2:has-text('faithfulness') ~ table").count() == 0
            one.closed(start if start == address else f"file://{tmp_path}")


def test_a_page_in_a_file_links_to_the_comparisons_that_it_holds(browser: Any, tmp_path: Path) -> None:
    """The viewer compares a subset of evaluations differently from all of them; a file does not hold that."""
    folder = tmp_path / "runs"
    for at, name in enumerate(("a", "b", "c")):
        write_evaluation(folder / name, BEFORE)
        os.utime(folder / name / "suite.yaml", (1_700_000_000 + at,) * 2)
    write_page([folder], tmp_path / "page.html")
    one = Watched(browser)
    for places, links in (("0,1", ["a → b"]), ("1,1", []), ("0,2", [])):
        one.page.goto(f"file://{tmp_path}/page.html#/run/{places}")
        one.page.wait_for_selector("h1")
        one.page.wait_for_function(f"document.title.includes('{'abc'[int(places[-1])]}')")
        assert one.page.locator("p:has-text('answers compared') a").all_inner_texts() == links
    one.closed(f"file://{tmp_path}")


def write_evaluation(folder: Path, drawn: list[Trajectory]) -> None:
    """Write a finished evaluation whose questions need no look."""
    write_trajectories(folder / "trajectories.parquet", drawn)
    (folder / "suite.yaml").touch()
    score = {"score": 0.7, "intervals": {"score": {"value": 0.7, "low": 0.5, "high": 0.8}}}
    looks = {"n": 0, "n_unscored": 0, "accuracy": None, "buckets": []}
    (folder / "results.json").write_text(json.dumps({"score": score, "sources": {}, "faithfulness": looks}))


def test_tokens_can_be_read_with_pointer_and_keys_and_stay_text(
    browser: Any, address: str, run: Path, tmp_path: Path
) -> None:
    one = Watched(browser)
    page = one.page
    page.goto(f"{address}#/0/step-000000/0")
    page.click("button:has-text('show tokens')")
    page.wait_for_selector("text=no entropy: the engine that generated it gives none per token")
    assert page.locator(".strip-of-tokens .token").count() == 8
    assert page.locator(".strip-of-tokens .token.dim").count() == 3
    assert page.locator(".tokens img").count() == 0
    page.hover(".strip-of-tokens .token >> nth=2")
    reading = page.locator(".readout")
    playwright.expect(reading).to_contain_text('token 2, id 3, "4", sampled, log-probability -0.1')
    page.focus(".strip-of-tokens")
    page.keyboard.press("ArrowLeft")
    playwright.expect(reading).to_contain_text("<img src=x onerror=alert(1)>")
    assert not set(page.inner_text("main")) & {"\u202e", "\x1b"}
    page.select_option(".tokens select", "advantage")
    assert page.locator(".strip-of-tokens .token.up").count() == 5
    write_page([run], tmp_path / "page.html")
    page.goto(f"file://{tmp_path}/page.html#/0/step-000000/0")
    page.wait_for_selector("text=Tokens are not in this file")
    assert page.locator("button:has-text('show tokens')").count() == 0
    page.close()
    assert one.problems == []


NARROW = 130
"""Height in pixels that no row name reaches: five lines."""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_their_window(browser: Any, address: str, width: int, scheme: str) -> None:
    one = Watched(browser, width, scheme)
    for name, path, wait in (
        ("run", "#/run/0", ".charted"),
        ("list", "#/0", "text=of 4"),
        ("one", "#/0/step-000000/0", "text=call 0: python"),
    ):
        one.page.goto(f"{address}{path}")
        one.page.wait_for_selector(wait)
        assert one.page.evaluate("document.documentElement.scrollWidth") <= width
        heads = one.page.evaluate("[...document.querySelectorAll('tbody th')].map((one) => one.offsetHeight)")
        assert max(heads, default=0) < NARROW, "a name that is broken after each letter"
        if SHOTS:
            one.page.screenshot(path=f"{SHOTS}/{name}-{width}-{scheme}.png", full_page=True)
    one.closed(address)


def test_long_words_and_a_trajectory_that_cannot_be_opened_leave_pages_whole(
    browser: Any, tmp_path: Path
) -> None:
    word = "W" * 3000
    assert MISSED.reward is not None
    long = replace(MISSED, source=word[:60], reward=replace(MISSED.reward, why=word))
    make_run(tmp_path / ("x" * 200), {0: [long], 4: [long]})
    write_trajectories(tmp_path / "two\nlines.parquet", [LOOKED])  # no address leads to its trajectories
    with served_here(tmp_path) as address:
        one = Watched(browser, 360)
        for at in ("", "#/run/0,1", "#/run/1", "#/1", "#/1/step-000000/0"):
            one.page.goto(f"{address}{at}")
            one.page.reload()
            one.page.wait_for_selector("h1")
            assert one.page.locator("h1:has-text('cannot be shown')").count() == 0
            wide = one.page.evaluate("document.documentElement.scrollWidth")
            assert wide == 360, f"{at} is {wide} pixels wide"
        one.page.close()


def test_a_list_follows_a_running_run(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {0: [LOOKED]})
    with served_here(run) as address:
        one = Watched(browser)
        one.page.goto(f"{address}#/0?q=step%3A9")
        one.page.wait_for_selector("text=Nothing matches.")
        write_trajectories(run / "trajectories" / "step-000009.parquet", [LOOKED])
        one.page.wait_for_selector("text=step-000009/0")
        one.closed(address)


def test_a_page_says_that_its_run_is_gone_and_that_the_viewer_was_stopped(
    browser: Any, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", {0: [LOOKED]})
    with served_here(run) as address:
        one = Watched(browser)
        one.page.goto(f"{address}#/run/0")
        one.page.wait_for_selector("text=1 trajectories")
        shutil.rmtree(run)
        one.page.wait_for_selector("text=it is gone: it was moved or deleted")
        one.page.wait_for_selector("text=1 trajectories")
        reading = Watched(browser)
        reading.page.goto(f"{address}#/group/0/step-000000/0")
        reading.page.wait_for_selector("text=cannot be opened any more")
    for stopped in (one.page, reading.page):  # what is being read stays
        stopped.wait_for_selector("text=This page is no longer updated: the viewer does not answer")
        assert stopped.locator("h1").count() == 1


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(make_sweep(tmp_path_factory.mktemp("sweeps") / "swept")) as url:
        yield url


@pytest.mark.parametrize("width", [1280, 390])
def test_a_sweep_shows_its_differences_and_its_tables(browser: Any, swept: str, width: int) -> None:
    one = Watched(browser, width)
    one.page.goto(swept)
    chart = one.page.locator(".charted", has_text="same: accuracy")
    playwright.expect(chart.locator("svg")).to_have_attribute(
        "aria-label", "same: accuracy: sharp - plain 10.0 [-14.8, 34.8]"
    )
    playwright.expect(chart.locator(".seed")).to_have_count(3)
    table = one.page.locator("section", has_text="held out: same").last
    playwright.expect(table).to_contain_text("70.0 [27.0, 113.0]")
    assert one.page.evaluate("document.documentElement.scrollWidth") <= width
    folded = one.page.locator("details", has_text="80 of 100")
    folded.locator("summary").click()
    playwright.expect(folded).to_contain_text("sharp - plain: accuracy")
    with one.page.expect_download() as saved:
        chart.locator("text=SVG").click()
    assert "<svg" in Path(saved.value.path()).read_text()
    if AXE.is_file():
        one.page.evaluate(AXE.read_text())
        found = one.page.evaluate("axe.run()")
        assert [
            fault["id"] for fault in found["violations"] if fault["impact"] in ("serious", "critical")
        ] == []
    one.closed(swept)
