"""Which GPUs of which machines a run uses, and what they get of this machine's environment."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.runs.commands import environment
from tests.runs.launched import eventually
from vtune.config import find, load_recipe
from vtune.errors import RecipeError
from vtune.runs.processes.launch import _command
from vtune.runs.processes.machines import ENVIRONMENT, included, machines_of, variables, write_environment
from vtune.runs.processes.pdsh import leashed
from vtune.runs.processes.watcher import end_sessions, packed
from vtune.runs.train.rl_recipe import RLRecipe


def hosts(folder: Path, text: str = "# ours\nfirst slots=8\n\nsecond slots=8  # rack 2\n") -> Path:
    (folder / "hosts").write_text(text)
    return folder / "hosts"


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a fake `ssh` for which every machine is this one."""
    folder = tmp_path / "programs"
    folder.mkdir()
    address = "10.0.$(($$ / 256 % 256)).$(($$ % 256))"
    program(folder / "ssh", f'[ "$*" = "-o BatchMode=yes $3 hostname -I" ] && echo "{address} 172.17.0.1"')
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def program(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def line_for(command: list[str], number: int) -> str:
    """What the shell of a machine gets from pdsh."""
    assert command[:-1] == ["pdsh", "-S", "-f", "1024", "-w", "first,second"]
    return re.sub("%(%|n)", lambda found: "%" if found[1] == "%" else str(number), command[-1])


PRINTS = """
import json, os, sys
if "vtune.runs.processes.watcher" in sys.orig_argv:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "CUDA_VISIBLE_DEVICES", "PYTHONPATH")
    line = json.dumps({**{name: os.environ.get(name) for name in names}, "cwd": os.getcwd()})
    os.write(1, f"{line}\\n".encode())
    os._exit(0)
"""


@pytest.mark.parametrize("name", ["runs", "my runs", "a&b;'c'", "$x `y`", "%h 100%", "müller_~1"])
def test_every_rank_on_every_machine_knows_its_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ssh: Path, name: str
) -> None:
    """Even if shells or pdsh find something to read in the working directory."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "sitecustomize.py").write_text(PRINTS)
    monkeypatch.chdir(tmp_path / name)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / name}:{ROOT}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    command = _command(["rl"], tmp_path, 2, hosts(tmp_path))
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    said = []
    for number in (0, 1):
        ended = subprocess.run(
            ["sh", "-c", line_for(command, number)], cwd="/", capture_output=True, text=True, check=True
        )
        said += [json.loads(line) for line in ended.stdout.splitlines()]
    said.sort(key=lambda one: int(one["RANK"]))
    assert [(one["RANK"], one["LOCAL_RANK"]) for one in said] == [
        ("0", "0"),
        ("1", "1"),
        ("2", "0"),
        ("3", "1"),
    ]
    assert {one["WORLD_SIZE"] for one in said} == {"4"}
    assert {one["CUDA_VISIBLE_DEVICES"] for one in said} == {"4,5"}
    (address,) = {one["MASTER_ADDR"] for one in said}
    assert re.fullmatch(r"10\.0\.\d+\.\d+", address)
    assert {one["cwd"] for one in said} == {str(tmp_path / name)}
    assert {one["PYTHONPATH"] for one in said} == {f"{tmp_path / name}:{ROOT}"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[ "$3" = first ] && echo 10.0.0.1 || { echo "Permission denied (publickey)." >&2; exit 255; }',
         r"ssh cannot reach second, .*: Permission denied \(publickey\)"),
        ("exit 3", "ssh cannot reach first, .*: it ended with status 3"),
        (r"printf 'M\374nchen\nPermission denied\n' >&2; exit 255", "first, .*: Permission denied"),
        ("echo Welcome", "first, .*, reports no address: `hostname -I` there ends in 'Welcome'"),
    ],
)  # fmt: skip
def test_a_machine_unreachable_by_ssh_is_named_before_anything_starts(
    tmp_path: Path, ssh: Path, text: str, said: str
) -> None:
    """pdsh would report it only when the others have ended, which wait for that machine."""
    program(ssh / "ssh", text)
    with pytest.raises(RecipeError, match=said):
        _command(["rl"], tmp_path, 1, hosts(tmp_path))


@pytest.mark.parametrize("prints", ["echo Welcome to 7", r"printf 'M\374nchen\n'; printf 'M\374nchen\n' >&2"])
def test_output_of_a_profile_or_banner_is_not_an_address(tmp_path: Path, ssh: Path, prints: str) -> None:
    program(ssh / "ssh", f"{prints}; echo 10.0.0.7 172.17.0.1")
    assert '"address": "10.0.0.7"' in _command(["rl"], tmp_path, 1, hosts(tmp_path))[-1]


def test_an_ssh_with_a_persistent_connection_counts_as_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ssh: Path
) -> None:
    monkeypatch.setattr("vtune.runs.processes.pdsh.SSH_SECONDS", 2.0)
    program(ssh / "ssh", "sleep 6 & echo 10.0.0.7")
    assert '"address": "10.0.0.7"' in _command(["rl"], tmp_path, 1, hosts(tmp_path))[-1]


def test_a_machine_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ssh: Path
) -> None:
    monkeypatch.setattr("vtune.runs.processes.pdsh.SSH_SECONDS", 0.2)
    program(ssh / "ssh", "echo 10.0.0.7; exec sleep 6")
    with pytest.raises(RecipeError, match=r"ssh cannot reach first, .*: no answer within 0\.2 s"):
        _command(["rl"], tmp_path, 1, hosts(tmp_path))


UNBLOCKS = """
import os, signal
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_connection_outlives_sigterm_though_ssh_unblocks_it(tmp_path: Path) -> None:
    """OpenSSH does that while it waits; but it does not accept a signal that it was started to ignore."""
    command = leashed(tmp_path, [sys.executable, "-c", UNBLOCKS])
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.wait() == 0


def test_without_visible_devices_the_first_gpus_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert included(hosts(tmp_path), 2) == "0,1"


@pytest.mark.parametrize(
    ("visible", "gpus", "said"),
    [
        ("", 9, "GPU 8 is wanted on every machine, but .* gives 8 of first: 0 to 7"),
        ("0,1", 3, "--gpus 3, but CUDA_VISIBLE_DEVICES names 2: 0,1"),
        ("GPU-3f2a,GPU-77b1", 2, "GPUs of other machines are known by number only"),
        ("7,8", 2, "GPU 8 is wanted"),
    ],
)
def test_missing_gpus_are_reported_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, gpus: int, said: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(RecipeError, match=said):
        included(hosts(tmp_path), gpus)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("first\n", "line 1 has 'first'"),
        ("first slots=8\nfirst slots=8\n", "line 2 has first a second time"),
        ("first slots=8\nme@First slots=8\n", "line 2 has me@First a second time"),
        ("first slots=8\nsecond slots=0\n", "line 2 has 'second slots=0'"),
        ("first slots=8\nsecond slots=8 port=22\n", "line 2 has 'second slots=8 port=22'"),
        ("first 8\n", "line 1 has 'first 8'"),
        ("fd00::7 slots=8\n", "line 1 has 'fd00::7', which"),
        ("node[1-4] slots=8\n", r"line 1 has 'node\[1-4\]', which"),
        ("# nothing\n", "names no machine"),
    ],
)
def test_a_hostfile_that_cannot_be_read_names_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        machines_of(hosts(tmp_path, text))


def test_other_machines_get_caches_proxies_and_the_keys_that_a_recipe_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ssh: Path
) -> None:
    """Through a file that no other user can read: everyone can see the launcher's command line."""
    recipe = load_recipe(
        find("credit-search-4b", "recipes.rl"), RLRecipe, ["reward.judge.api_key_env=MY_KEY"]
    )
    names = variables(recipe.model_dump(mode="json"))
    assert "MY_KEY" in names
    given = {"MY_KEY": "secret", "HF_HOME": "/shared/hub", "https_proxy": "http://proxy:3128"}
    for name, value in {**given, "SSH_AUTH_SOCK": "/tmp/agent", "VLLM_HOST_IP": "10.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    write_environment(tmp_path, names)
    file = tmp_path / ENVIRONMENT
    assert file.stat().st_mode & 0o777 == 0o600
    found = json.loads(file.read_text())
    assert given.items() <= found.items()
    assert not {"SSH_AUTH_SOCK", "VLLM_HOST_IP", "PATH", "HOME"} & set(found)
    assert "secret" not in " ".join(_command(["rl"], tmp_path, 1, hosts(tmp_path)))


ECHOES = """
import json, os, pathlib, sys
if "vtune.cli.main" in sys.orig_argv:
    pathlib.Path(__file__).with_name("words").write_text(json.dumps(sys.orig_argv[3:]))
    os._exit(0)
"""


def test_a_remote_rank_gets_every_argument_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ssh: Path
) -> None:
    words = ["rl", "--set", "reward.judge.base_url=http://judge/v1?a=1&b=2", "--set", "model=/data/$HOME (1)"]
    words += ["--set", "data=['it.parquet']", "--set", "x=", "--out", "runs/a; b"]
    (tmp_path / "sitecustomize.py").write_text(ECHOES)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    line = line_for(_command(words, tmp_path, 1, hosts(tmp_path)), 1)
    ended = subprocess.run(["sh", "-c", line], stdin=subprocess.DEVNULL, check=False)
    assert ended.returncode == 0
    assert json.loads((tmp_path / "words").read_text()) == words


def test_variables_that_training_reads_are_sent_without_secrets_in_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ssh: Path
) -> None:
    given = {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "NCCL_SOCKET_IFNAME": "ib0",
        "MLFLOW_TRACKING_PASSWORD": "secret",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".deepspeed_env").write_text("LD_LIBRARY_PATH=/opt/lib:/opt/a=b\n\nNCCL_DEBUG = INFO\n")
    write_environment(tmp_path, ())
    given |= {"LD_LIBRARY_PATH": "/opt/lib:/opt/a=b", "NCCL_DEBUG": "INFO"}
    assert given.items() <= json.loads((tmp_path / ENVIRONMENT).read_text()).items()
    assert "secret" not in " ".join(_command(["rl"], tmp_path, 1, hosts(tmp_path)))


def test_a_variable_may_be_taken_from_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".deepspeed_env").write_text("export NCCL_DEBUG=INFO\n")
    write_environment(tmp_path, ())
    assert json.loads((tmp_path / ENVIRONMENT).read_text())["NCCL_DEBUG"] == "INFO"


def test_a_line_without_a_variable_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".deepspeed_env").write_text("A=1\nexport\n")
    with pytest.raises(RecipeError, match=r"deepspeed_env, line 2 has 'export'"):
        write_environment(tmp_path, ())


RANK = """
import os, pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(os.environ["NOTE"]).write_text(f"{child.pid} {os.environ.get('HF_HOME')}")
os._exit(int(os.environ["CODE"]))
"""


@pytest.mark.parametrize("code", [0, 3])
def test_processes_started_by_a_rank_end_with_it(tmp_path: Path, code: int) -> None:
    """As the engine of a vLLM, whose parent was killed; the rank has the first machine's variables."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/sitecustomize.py").write_text(
        "import sys\nif 'vtune.cli.main' in sys.orig_argv:\n"
        + "".join(f"    {line}\n" for line in RANK.strip().splitlines())
    )
    (logs / ENVIRONMENT).write_text(json.dumps({"HF_HOME": "/shared/hub"}))
    note = tmp_path / "note"
    settings = environment(PYTHONPATH=str(tmp_path / "lib"), NOTE=str(note), CODE=str(code), RANK="1")
    words = [sys.executable, "-m", "vtune.runs.processes.watcher", "free", packed([str(logs), "a-rank"])]
    watcher = subprocess.run(words, env=settings, stdin=subprocess.DEVNULL, cwd=Path.cwd(), check=False)
    assert watcher.returncode == code, (logs / "rank-1.log").read_text()
    child, home = note.read_text().split()
    assert home == "/shared/hub"
    assert eventually(lambda: not alive(int(child)), 10)
    assert not (logs / "rank-1.session").exists()


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_a_rank_without_its_watcher_is_ended_only_on_this_machine(tmp_path: Path) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    (tmp_path / "rank-0.session").write_text(json.dumps([socket.gethostname(), sleeper.pid]))
    (tmp_path / "rank-9.session").write_text(json.dumps(["elsewhere", os.getpid()]))
    end_sessions(tmp_path)
    assert sleeper.wait(10) == -9
    assert [file.name for file in tmp_path.iterdir()] == ["rank-9.session"]
