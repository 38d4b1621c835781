"""JavaScript modules of the page that need no browser, run in Node."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.conftest import ROOT
from vtune.errors import RecipeError
from vtune.files.terminal import clean
from vtune.schema.trajectory import Flag
from vtune.view.query import CLOSED, parse_query

NODE = shutil.which("node") or ""
pytestmark = pytest.mark.skipif(not NODE, reason="no node")
STATIC = ROOT / "vtune" / "view" / "static"
NO_PAGE = "globalThis.document = { getElementById: () => null };"


def said(folder: Path, code: str) -> Any:
    """The value of an expression in the page's modules."""
    shutil.copytree(STATIC, folder, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "asked.js").write_text(
        f"{NO_PAGE}\nconsole.log(JSON.stringify(await (async () => {{ {code} }})()));"
    )
    ended = subprocess.run([NODE, "asked.js"], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_runs_of_one_recipe_are_one_line_and_a_repeated_seed_is_separate(tmp_path: Path) -> None:
    runs = [
        {"line": "a", "seed": 0},
        {"line": "a", "seed": 1},
        {"line": "a", "seed": 1},
        {"line": "b", "seed": 0},
    ]
    places = [{"name": name} for name in ("lr/seed-0", "lr/seed-1", "again", "other/seed-0")]
    code = f"""
        const {{ byLine }} = await import("./run.js");
        return byLine({json.dumps(places)}, {json.dumps(runs)}).map((one) => [one.name, one.runs.length]);
    """
    assert said(tmp_path, code) == [["lr (2 seeds)", 2], ["again", 1], ["other/seed-0", 1]]


def test_trajectory_addresses_keep_the_page_of_the_list(tmp_path: Path) -> None:
    code = """
        const { address } = await import("./list.js");
        const ones = [[0, "a b", "step-1/2", 100], [0, "", "", 100], [0, "a", "k/0"], [3, ""]];
        return ones.map((one) => address(...one));
    """
    assert said(tmp_path, code) == ["#/0/step-1/2?q=a%20b&first=100", "#/0?first=100", "#/0/k/0?q=a", "#/3"]


BAD = (
    "right:maybe",
    "faithful:1",
    "reward:high",
    "calls>1,",
    "step<none",
    "source>lens",
    "flag<=2",
    "right>=yes",
    "sort:flags",
    "sort:-label",
    "sort:rewrd",
    "rihgt:no",
    "-status:eror",
    "stop:lenght",
    "label:judge",
    "step:1_0",
    "reward<nan",
    "x" * 1001,
)
GOOD = (
    "right:no,none",
    "reward>=-.5e1",
    "step=3",
    "step:none",
    "sort:--reward",
    "-label:none",
    'answer:"a,b"',
    "status:ok,none",
    *(f'{name}:"{value}"' for name, values in CLOSED.items() for value in values),
)


def test_an_html_file_refuses_queries_with_the_viewers_messages(tmp_path: Path) -> None:
    code = f"""
        const {{ query }} = await import("./query.js");
        const told = (text) => {{
            try {{ query(text); return null; }} catch (error) {{ return error.message; }}
        }};
        return {json.dumps([*BAD, *GOOD])}.map(told);
    """
    assert said(tmp_path, code) == [*map(refusal, BAD), *(None for _ in GOOD)]
    assert all(map(refusal, BAD))
    assert not any(map(refusal, GOOD))


def test_an_html_file_reads_flags_and_quotes_like_the_viewer(tmp_path: Path) -> None:
    flags = get_args(Flag)
    asked = [f"flag:{','.join(flags)}", "flag:blurred", "flag:none", 'stop:"none"', 'stop:"length,answer"']
    code = f"""
        const {{ query, select }} = await import("./query.js");
        const rows = [{{ flags: " blurred ", stop: "answer" }}, {{ flags: "", stop: null }}];
        const found = (text) => {{
            try {{ return select(rows, query(text)).length; }} catch (error) {{ return error.message; }}
        }};
        return {json.dumps([*asked, "-flag:blured"])}.map(found);
    """
    assert said(tmp_path, code) == [0, 1, 1, 1, 1, "`flag` is never 'blured'"]


def refusal(text: str) -> str | None:
    try:
        parse_query(text)
    except RecipeError as error:
        return error.what
    return None


def test_a_change_links_to_its_trajectories(tmp_path: Path) -> None:
    ones = [
        {"source": "signs", "name": "accuracy", "verdict": "fell back", "best_step": 64},
        {"source": "all", "name": "truncated", "verdict": "worse", "best_step": 9},
        {"source": 'a "b" c', "name": "entropy", "verdict": "lower", "best_step": None},
        {"source": "lens", "name": "accuracy", "verdict": "better", "best_step": 3},
    ]
    code = f"""
        const {{ behind }} = await import("./run.js");
        return {json.dumps(ones)}.map(behind);
    """
    found = said(tmp_path, code)
    assert found[:2] == ['source:"signs" right:no step>64', "stop:length step>9"]
    assert found[2:] == ["", 'source:"lens"']
    assert [term.name for term in parse_query(found[0]).terms] == ["source", "right", "step"]


def test_the_page_escapes_the_same_characters_as_the_terminal(tmp_path: Path) -> None:
    """The same characters, out of all Unicode; only the spelling differs."""
    unsafe = [code for code in range(0x110000) if clean(chr(code)) != chr(code)]
    code = """
        const { clean } = await import("./dom.js");
        const found = [];
        for (let code = 0; code < 0x110000; code += 1) {
          if (clean(String.fromCodePoint(code)) !== String.fromCodePoint(code)) found.push(code);
        }
        return found;
    """
    assert len(unsafe) > 2000
    assert said(tmp_path, code) == unsafe
