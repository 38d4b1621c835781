"""`vtune doctor RECIPE`."""

import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.listening import listening
from tests.runs.commands import vtune
from tests.runs.plan.test_doctor import NoSandbox
from tests.test_cli import picture
from vtune.config import find, load_recipe
from vtune.runs.plan import checks, doctor
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.message import Picture
from vtune.schema.parquet import read_samples, write_samples


@contextmanager
def endpoint(status: int, body: Any) -> Iterator[str]:
    """Run a server with one fixed answer; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as port:
        yield f"http://127.0.0.1:{port}/v1"


def judge(url: str, **changes: Any) -> dict[str, Any]:
    return {"base_url": url, "model": "big", "api_key_env": None} | changes


def recipe_file(folder: Path, model: Path, data: Path, **changes: str) -> Path:
    text = find("codev-tiny", "recipes.rl").read_text()
    text = text.replace("runs/demo/sft/checkpoints/newest", str(model))
    text = text.replace("runs/demo/data/train.parquet", str(data))
    for before, after in changes.items():
        text = text.replace(before, after)
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [1", "not YAML"),
        (b"5\n", "is not a YAML mapping"),
        (b"", "is not a YAML mapping"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_file_that_is_not_a_recipe_is_reported_as_text(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    ended = vtune("doctor", path)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def check_recipe(path: Path) -> list[dict[str, Any]]:
    return checks.check_recipe(checks.read_recipe(str(path)))


@pytest.mark.usefixtures("probed")
def test_a_recipe_with_all_requirements_passes(tiny: Path, lens: Path, tmp_path: Path) -> None:
    path = recipe_file(tmp_path, tiny, lens / "train.parquet")
    ended = vtune("doctor", path, "--json")
    result = json.loads(ended.out)
    found = {check["name"]: check for check in result["checks"]}
    assert set(found) == {"shared memory", "model", "memory", "disk", "data", "pictures"}
    asked = ("model", "memory", "disk", "data", "pictures")
    assert all(found[name]["level"] == "ok" for name in asked)
    assert ended.code == (0 if result["sandbox"]["tier"] else 1)


@pytest.mark.parametrize(
    ("tools", "suites", "needed"),
    [
        (("python",), "", True),
        ((), "", False),
        ((), "{suite: lens, limit: 2, settings: {data: [TRAIN]}}", False),
        ((), "{suite: lens, limit: 2, settings: {data: [CODE]}}", True),
        ((), "{suite: lens, limit: 2, settings: {data: [GONE]}}", True),
    ],
)
def test_a_recipe_needs_a_sandbox_where_code_may_run(
    tools: tuple[str, ...], suites: str, needed: bool, tiny: Path, lens: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(doctor, "Sandbox", NoSandbox)
    samples = list(read_samples(lens / "train.parquet"))
    data, code = tmp_path / "data.parquet", lens / "train.parquet"
    write_samples(data, [replace(sample, tools=tools) for sample in samples])
    named = (
        suites.replace("TRAIN", str(data)).replace("CODE", str(code)).replace("GONE", str(tmp_path / "no"))
    )
    section = f"eval:\n  every: 1\n  suites: [{named}]\n" if suites else "eval: null\n"
    path = recipe_file(tmp_path, tiny, data)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(section if line.startswith("eval: null") else line for line in lines))
    ended = vtune("doctor", path, "--json")
    result = json.loads(ended.out)
    assert result["sandbox"]["tier"] is None
    assert (result["sandbox"]["needed"], result["ok"], ended.code) == (needed, not needed, int(needed))
    assert any("Landlock" in fix for fix in result["fixes"]) is needed
    assert ("this recipe runs no code" in vtune("doctor", path).out) is not needed


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def spoilt(path: Path, **changes: Any) -> None:
    """A file with the fourth row replaced."""
    rows = list(read_samples(path))
    rows[3] = replace(rows[3], **changes)
    write_samples(path, rows)


@pytest.mark.usefixtures("probed")
@pytest.mark.parametrize(
    ("spoil", "given", "said"),
    [
        (cut, [], "the Parquet file is cut short or damaged"),
        (lambda path: spoilt(path, images=(Picture(b"none"),)), [], "row 3: a picture cannot be opened"),
        (lambda path: spoilt(path, tools=("image_zoom_in_tool",)), [], "no section tools.zoom"),
        (lambda path: spoilt(path, evidence=()), [], "has no evidence boxes, and the recipe has no judge"),
        (lambda _: None, ["rollout.max_tokens=40"], "leave no room for a reply within 40 tokens"),
    ],
    ids=["cut", "picture", "tool", "judge", "length"],
)
def test_data_that_a_run_would_refuse_fail_a_check(
    spoil: Callable[[Path], None], given: list[str], said: str, tiny: Path, lens: Path, tmp_path: Path
) -> None:
    data = tmp_path / "train.parquet"
    shutil.copy(lens / "train.parquet", data)
    spoil(data)
    words = [recipe_file(tmp_path, tiny, data), *(word for one in given for word in ("--set", one))]
    ended = vtune("doctor", *words, "--json")
    result = json.loads(ended.out)
    assert ended.code == 1
    (check,) = (check for check in result["checks"] if check["name"] == "data")
    assert check["level"] == "fail"
    assert said in check["found"]
    assert any(fix.startswith("data: ") for fix in result["fixes"])


@pytest.mark.usefixtures("probed")
def test_a_judge_that_no_row_needs_is_not_asked(tiny: Path, lens: Path, tmp_path: Path) -> None:
    path = recipe_file(tmp_path, tiny, lens / "train.parquet")
    judge = "reward.judge={base_url: 'http://127.0.0.1:9/v1', model: big, api_key_env: null, concurrency: 1, "
    judge += "retries: 0, timeout_s: 1, temperature: 0.0, max_tokens: 8}"
    ended = vtune("doctor", path, "--set", judge, "--json")
    found = {check["name"]: check for check in json.loads(ended.out)["checks"]}
    assert (found["judge"]["level"], found["judge"]["found"]) == ("ok", "no row of the data needs it")


def test_settings_are_those_of_a_recipe() -> None:
    ended = vtune("doctor", "--set", "steps=3")
    assert ended.code == 2
    assert "only with a recipe" in ended.err


@pytest.mark.usefixtures("probed")
def test_supervised_training_needs_no_sandbox(tiny: Path, lens: Path, tmp_path: Path) -> None:
    values = yaml.safe_load(find("codev-tiny", "recipes.sft").read_text())
    path = tmp_path / "sft.yaml"
    path.write_text(yaml.safe_dump(values | {"model": str(tiny), "data": [str(lens / "traces.parquet")]}))
    assert json.loads(vtune("doctor", path, "--json").out)["sandbox"]["needed"] is False


def test_disk_space_for_checkpoints_of_an_epoch_run_counts_all_steps(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    """32 traces, 24 epochs and a batch of 16 are 48 steps."""
    reported = []
    for number, length in enumerate(("epochs: 24.0", "steps: 48", "epochs: 24.0")):
        values = yaml.safe_load(find("codev-tiny", "recipes.sft").read_text())
        traces = lens / "traces.parquet" if number < 2 else tmp_path / "none.parquet"
        del values["epochs"]
        values |= {"model": str(tiny), "data": [str(traces)], "batch_size": 16} | yaml.safe_load(length)
        values["checkpoints"] |= {"every": 1, "keep": {"newest": 1, "every": 1}}
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(values))
        (disk,) = (check for check in check_recipe(path) if check["name"] == "disk")
        reported.append(disk["found"].partition("checkpoints take ")[2])
    by_epochs, by_steps, without_data = reported
    assert by_epochs == by_steps != without_data
    assert without_data.endswith(" GB more every 1 steps")


def test_checkpoints_take_as_much_as_a_dry_run_says(tiny: Path, lens: Path, tmp_path: Path) -> None:
    path = recipe_file(tmp_path, tiny, lens / "train.parquet")
    planned = json.loads(vtune("rl", "--recipe", path, "--dry-run", "--shape", "Qwen2.5-VL-7B", "--json").out)
    path.write_text(path.read_text().replace(str(tiny), "Qwen/Qwen2.5-VL-7B-Instruct"))
    (disk,) = (check for check in check_recipe(path) if check["name"] == "disk")
    together = planned["check"]["plan"]["disk_gb"]["together"]
    assert disk["found"].endswith(f"checkpoints take up to {together:.1f} GB")


def test_the_pixel_budgets_of_a_recipes_suites_are_compared_with_its_own(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    own = "{suite: mmmu, limit: 1, settings: {images.max_pixels: 12544}}"
    named = f"eval:\n  every: 1\n  suites: [lens, vstar, {own}]\n"
    text = recipe_file(tmp_path, tiny, lens / "train.parquet").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("eval: null"))
    path = tmp_path / "named.yaml"
    path.write_text(text.replace(f"{line}\n", named))
    found = {check["name"]: check for check in check_recipe(path) if "pixels" in check["name"]}
    assert {name: check["level"] for name, check in found.items()} == {
        "pixels, lens": "ok",
        "pixels, vstar": "warn",
        "pixels, mmmu": "ok",
    }
    assert "12544 in the recipe" in found["pixels, vstar"]["found"]
    assert "images.max_pixels: 12544" in found["pixels, vstar"]["fix"]


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vllm is installed")
def test_an_engine_that_is_not_installed_is_named(tiny: Path, lens: Path, tmp_path: Path) -> None:
    path = recipe_file(tmp_path, tiny, lens / "train.parquet", **{"engine: transformers": "engine: vllm"})
    (check,) = (check for check in check_recipe(path) if check["name"] == "rollout engine")
    assert (check["level"], check["found"]) == ("fail", "vllm is not installed")
    assert "vtune[vllm]" in check["fix"]


@pytest.mark.usefixtures("probed")
def test_a_missing_requirement_is_reported_with_a_fix_and_exit_1() -> None:
    ended = vtune("doctor", "rl/codev", "--json")
    assert ended.code == 1
    result = json.loads(ended.out)
    found = {check["name"]: check for check in result["checks"]}
    assert found["data"]["level"] == found["judge"]["level"] == "fail"
    assert any(fix.startswith("judge: start it, e.g. `vllm serve") for fix in result["fixes"])
    text = vtune("doctor", "rl/codev").out
    assert "there is no data/curated/codev-rl/samples.parquet" in text
    assert "fix  data: make or import it" in text


def test_an_ambiguous_recipe_name_is_refused(tmp_path: Path) -> None:
    ended = vtune("doctor", "codev")
    assert ended.code == 2
    assert "sft/codev or rl/codev" in ended.err
    assert vtune("doctor", "lens").code == 2


def test_pictures_too_small_for_stock_processors_are_counted(lens: Path, tmp_path: Path) -> None:
    rows = list(read_samples(lens / "heldout.parquet"))
    rows[2] = replace(rows[2], images=(picture(27, 500),))
    rows[4] = replace(rows[4], images=(picture(300, 20),))
    data = tmp_path / "small.parquet"
    write_samples(data, rows)
    recipe = load_recipe(recipe_file(tmp_path, tmp_path, data), RLRecipe)
    (check,) = checks._small(recipe)
    assert check.level == "warn"
    assert "2 of 6 are under 28 px a side, first row 2" in check.found


def test_a_judge_is_asked_which_models_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    with endpoint(200, {"data": [{"id": "big"}]}) as url:
        assert checks._judge(judge(url)).level == "ok"
        other = checks._judge(judge(url, model="other"))
        assert (other.level, other.found) == ("fail", f"{url} serves big, not other")
        keyed = checks._judge(judge(url, api_key_env="NO_SUCH_KEY"))
        assert (keyed.level, keyed.found) == ("fail", "NO_SUCH_KEY is not set")
    with endpoint(404, {}) as url:
        assert checks._judge(judge(url)).level == "ok"
    with endpoint(500, {}) as url:
        assert "status 500" in checks._judge(judge(url)).found
    gone = checks._judge(judge(url))
    assert gone.level == "fail"
    assert "refused" in gone.found


def test_the_fix_for_a_judge_matches_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "wrong")
    with endpoint(401, {}) as url:
        found = checks._judge(judge(url, api_key_env="MY_KEY"))
        assert (found.level, found.fix) == ("fail", "check the key in MY_KEY")
        assert "api_key_env" in checks._judge(judge(url)).fix
    with endpoint(200, {"data": [{"id": "models/big"}]}) as url:
        assert checks._judge(judge(url)).level == "ok"
    assert "--port" not in checks._judge(judge("http://no-such-host.invalid/v1")).fix


def test_a_server_that_does_not_speak_http_fails_a_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            with server.accept()[0] as connection:
                connection.recv(1024)
                connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

        threading.Thread(target=greet, daemon=True).start()
        found = checks._judge(judge(f"http://127.0.0.1:{server.getsockname()[1]}/v1"))
    assert found.level == "fail"
    assert "no answer in HTTP" in found.found


def test_a_proxy_is_used_only_if_a_run_would_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with endpoint(200, {"judge": None, "data": []}) as url:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        service = {"urls": [url], "token_env": None}
        assert [check.level for check in checks._rewards(service, None)] == ["ok"]
        values = {"rollout": {"servers": [url]}}
        assert [check.level for check in checks._services(values, None)] == ["ok"]
        assert checks._judge(judge(url)).level == "fail"


def test_rollout_servers_are_checked_too() -> None:
    with endpoint(200, {}) as url:
        values = {"rollout": {"servers": [url, "http://127.0.0.1:9"]}}
        assert [check.level for check in checks._services(values, None)] == ["ok", "fail"]


def test_reward_services_are_checked_for_health_and_the_same_judge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {"model": "big", "temperature": 0.0, "max_tokens": 8}
    monkeypatch.setenv("MY_TOKEN", "x" * 16)

    def levels(*urls: str, token: str | None = "MY_TOKEN") -> list[tuple[str, str]]:
        service = {"urls": urls, "token_env": token}
        checked = checks._services({"reward": {"service": service, "judge": None}}, None)
        return [(check.level, check.found) for check in checked]

    with endpoint(200, {"judge": own}) as url:
        assert [level for level, _ in levels(url, "http://127.0.0.1:9")] == ["ok", "fail"]
        assert levels(url, token="NO_SUCH_TOKEN") == [("fail", "NO_SUCH_TOKEN is not set")]
        service = {"urls": [url], "token_env": None}
        assert [check.level for check in checks._rewards(service, own | {"base_url": "x"})] == ["ok"]
        (other,) = checks._rewards(service, own | {"model": "other"})
        assert other.level == "fail"
        assert "has the judge" in other.found
    with endpoint(401, {}) as url:
        assert levels(url) == [("fail", f"{url}: status 401")]


@pytest.mark.parametrize(("size", "level"), [(64e6, "warn"), (16e9, "ok")])
def test_little_shared_memory_is_a_warning(size: float, level: str) -> None:
    assert doctor._shared_memory(size)["level"] == level


@pytest.mark.usefixtures("probed")
def test_a_machine_without_shared_memory_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "SHARED_MEMORY", tmp_path / "shm")
    ended = vtune("doctor", "--json")
    assert ended.code == 1
    (check,) = [one for one in json.loads(ended.out)["checks"] if one["name"] == "shared memory"]
    assert (check["level"], check["found"]) == ("fail", f"there is no {tmp_path / 'shm'}")
    assert "mount" in check["fix"]


@pytest.mark.parametrize(
    ("driver", "cuda", "level"),
    [("570.1", "13.0", "fail"), ("580.95", "13.0", "ok"), ("535.1", "12.8", "ok")],
)
def test_a_driver_must_know_the_cuda_of_torch(driver: str, cuda: str, level: str) -> None:
    (check,) = doctor._driver([f"NVIDIA H200, 143771 MiB, {driver}"], f"torch sees 1 GPU(s) with CUDA {cuda}")
    assert check["level"] == level
    assert doctor._driver([], "no GPU") == []


def test_the_fix_for_a_package_is_the_tested_version() -> None:
    rows = [
        {"name": "torch", "wanted": "<2.14,>=2.11", "ok": False},
        {"name": "numpy", "wanted": ">=2", "ok": False},
    ]
    fixes = doctor._fixes(rows, [], "no GPU", {"tier": "namespaces", "needed": True})
    assert fixes == ["packages: pip install 'torch==2.13.0' 'numpy>=2'"]
