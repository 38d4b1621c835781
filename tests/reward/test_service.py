"""The reward service over HTTP: in this process if that is enough, else as users start it."""

import asyncio
import base64
import dataclasses
import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.judge.server import serve
from tests.reward.build import TARGET, WRONG, looks, recipe, sample
from tests.reward.serving import Served, alive, children, serving
from tests.reward.test_score import NOWHERE
from tests.runs.commands import vtune
from tests.verifiers.cases import CASES, sample_of, wrap
from vtune.errors import RecipeError, RunFailed
from vtune.reward.checking import check_unscored
from vtune.reward.recipe import IouSchedule, RewardRecipe
from vtune.reward.score import Scorer
from vtune.reward.service import ITEMS, Service, app_of, status_of
from vtune.reward.wire import item_of, settings_of
from vtune.runs.serve.rewards import check_token, read_reward, read_token
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.verifiers import VERIFIERS

TOKEN = "0123456789abcdef"
WHOLE = (0, 0, 100, 100)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving("--workers", "1") as one:
        yield one


def asked(
    *requests: tuple[str, str, Any],
    given: RewardRecipe | None = None,
    token: str | None = None,
    max_bytes: int = 10**6,
    headers: dict[str, str] | None = None,
) -> list[httpx2.Response]:
    """Answers of a service in this process to a sequence of (method, path, body)."""

    async def story() -> list[httpx2.Response]:
        service = Service(given, workers=1)
        transport = httpx2.ASGITransport(app_of(service, token=token, max_bytes=max_bytes))
        async with (
            service.running(),
            httpx2.AsyncClient(transport=transport, base_url="http://here", headers=headers) as http,
        ):
            return [
                await http.request(
                    method, path, **({"content": body} if isinstance(body, bytes | str) else {"json": body})
                )
                if body is not None
                else await http.request(method, path)
                for method, path, body in requests
            ]

    return asyncio.run(story())


def score(
    pairs: list[tuple[Sample, Trajectory]], how: RewardRecipe, *, iou: Sequence[float] = ()
) -> list[Trajectory]:
    async def story() -> list[Trajectory]:
        async with Scorer(how) as scorer:
            return await scorer.score([one for one, _ in pairs], [done for _, done in pairs], iou=iou)

    return asyncio.run(story())


def told(question: Sample, reply: str, **changes: Any) -> tuple[Sample, Trajectory]:
    messages = (Message("user", "?"), Message("assistant", reply))
    done = Trajectory(sample_id=question.id, source=question.source, messages=messages, **changes)
    return question, done


def everything() -> list[tuple[Sample, Trajectory]]:
    """Replies for every verifier, and trajectories with calls of every kind, with unique sample ids."""
    pairs = []
    for name, case in CASES.items():
        broken = sample_of(name, gold=case.broken_gold)
        replies = [
            wrap(case.gold),
            wrap(case.wrong),
            "no idea",
            f"{wrap(case.gold)} or so",
            "é\u2028<answer>",
        ]
        pairs += [told(sample_of(name), reply) for reply in replies]
        pairs += [told(broken, wrap(case.gold)), told(sample_of(name), wrap(case.gold), stop_reason="error")]
    unreadable = looks(TARGET)
    unreadable = dataclasses.replace(unreadable, images=(Picture(b"?"), *unreadable.images[1:]))
    done = [looks(TARGET), looks(TARGET, WHOLE), looks(reply=WRONG), looks((0, 0, 30, 30)), looks("error")]
    done += [looks(TARGET, "infra"), looks(TARGET, TARGET), unreadable]
    pairs += [(sample(TARGET), one) for one in done]
    pairs += [(sample(TARGET, tool_ratio=0.5), looks(TARGET)), (sample(ability="math"), looks(TARGET))]
    pairs.append(told(dataclasses.replace(sample_of("exact"), verifier="exakt"), wrap("7")))
    return [
        (dataclasses.replace(one, id=f"{n}"), dataclasses.replace(done, sample_id=f"{n}"))
        for n, (one, done) in enumerate(pairs)
    ]


def test_a_service_gives_the_same_scores_as_in_process_for_every_verifier(served: Served) -> None:
    pairs = everything()
    assert {one.verifier for one, _ in pairs} >= set(CASES)
    totals = set()
    for weighting in ("recipe", "sample"):
        here = score(pairs, recipe(weighting=weighting, tool_gated=True))
        there = score(pairs, recipe(weighting=weighting, tool_gated=True, service=[served.url]))
        assert there == here
        totals |= {done.reward.total for done in here if done.reward is not None}
    assert len(totals) > 5
    assert None in totals


def test_the_thresholds_of_a_step_are_sent_along(served: Served) -> None:
    case = CASES["detection"]
    parm = {key: value for key, value in case.parm.items() if key != "iou"}
    near = case.gold.replace("10, 10, 50, 50", "10, 10, 50, 45")
    pairs = [told(dataclasses.replace(sample_of("detection"), verifier_parm=parm), wrap(near))]
    for iou, least, most in (((0.5,), 0.9, 1.0), ((0.99,), 0.4, 0.6)):
        here = score(pairs, recipe(), iou=iou)
        assert score(pairs, recipe(service=[served.url]), iou=iou) == here
        assert here[0].reward is not None
        assert least < (here[0].reward.accuracy or 0.0) < most


def test_a_service_asks_the_judge_of_its_recipe(tmp_path: Path) -> None:
    with serve("0.5") as judge:
        own = recipe(judge=judge.endpoint())
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump({"reward": own.model_dump(mode="json"), "steps": 3}))
        item = item_of(sample(), looks(TARGET))
        wants = {"reward": settings_of(own), **item}
        other = settings_of(own) | {"judge": {"model": "other", "temperature": 0.0, "max_tokens": 8}}
        answers = asked(
            ("POST", "/score", wants),
            ("POST", "/score", item),
            ("POST", "/score", {"reward": settings_of(recipe()), **item}),
            ("POST", "/score", {"reward": other, **item}),
            given=read_reward(str(path)),
        )
    assert [one.status_code for one in answers] == [200, 200, 422, 422]
    assert answers[0].json()["tool_scores"] == [0.5]
    assert answers[1].json() == answers[0].json()
    assert "no judge in the recipe" in answers[2].json()["error"]["what"]
    assert "set `reward.judge`" in answers[2].json()["error"]["fix"]
    assert "the request wants" in answers[3].json()["error"]["what"]
    assert len(judge.requests) == 1


def test_a_judge_without_a_reply_is_named_in_the_answer(tmp_path: Path) -> None:
    own = recipe(judge=NOWHERE)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"reward": own.model_dump(mode="json"), "steps": 3}))
    paid, unpaid = (
        asked(("POST", "/score", item_of(sample(), trajectory)), given=read_reward(str(path)))[0]
        for trajectory in (looks(TARGET), looks())
    )
    assert (paid.status_code, paid.json()["silent"]) == (500, True)
    assert f"({NOWHERE.base_url}, model {NOWHERE.model})" in paid.json()["error"]["what"]
    assert (unpaid.status_code, "silent" in unpaid.json()) == (200, False)


def test_an_unreadable_ground_truth_is_422_with_the_reason_not_zero() -> None:
    for name, case in CASES.items():
        if VERIFIERS[name].in_worker:
            continue
        item = item_of(*told(sample_of(name, gold=case.broken_gold), wrap(case.gold)))
        (answer,) = asked(("POST", "/score", item), given=recipe())
        assert answer.status_code == 422, name
        said = answer.json()
        assert said["error"]["what"].startswith("accuracy: ")
        assert (said["reward"]["accuracy"], said["reward"]["total"]) == (None, None)
        assert said["reward"]["format"] == 1.0


def test_an_unknown_verifier_is_422_with_a_list_of_known_ones() -> None:
    item = item_of(*told(dataclasses.replace(sample_of("exact"), verifier="exakt"), wrap("7")))
    (answer,) = asked(("POST", "/score", item), given=recipe())
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert "unknown verifier 'exakt'" in error["what"]
    assert "`exact`" in error["fix"]
    assert "uses" in error["fix"]


def test_each_item_of_a_batch_has_its_own_status_in_order() -> None:
    good = item_of(*told(sample_of("exact"), wrap(CASES["exact"].gold)))
    bad = item_of(*told(sample_of("exact", gold=" . "), wrap("x")))
    wrong = item_of(*told(sample_of("exact"), wrap("South")))
    (answer,) = asked(("POST", "/score", {"items": [bad, good, {"sample": 3}, wrong]}), given=recipe())
    results = answer.json()["results"]
    assert answer.status_code == 200
    assert [one["status"] for one in results] == [422, 200, 422, 200]
    assert [one["reward"] and one["reward"]["accuracy"] for one in results] == [None, 1.0, None, 0.0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "not JSON"),
        (b'"\xff"', "not JSON"),
        ("[]", "not a JSON object"),
        ({"items": 3}, "`items` is a list"),
        ({"items": [{}] * (ITEMS + 1)}, "`items` is a list"),
        ({"items": [], "itmes": []}, "unknown key `itmes`"),
        ({"reward": 3, "items": []}, "`reward` is not a JSON object"),
        ({"reward": {"accuracy": 1.0}, "items": []}, "`reward.format`"),
        ({"sample": {"data_source": "x"}, "reply": "B"}, "prompt|reward_model"),
        ({"sample": {"anwser": "B"}, "reply": "B"}, "unknown key `anwser`.*`reward_model.answer`"),
    ],
)
def test_a_wrong_request_is_422_with_the_reason(body: Any, message: str) -> None:

    (answer,) = asked(("POST", "/score", body), given=recipe())
    assert answer.status_code == 422
    assert re.search(message, json.dumps(answer.json()["error"]))


@pytest.mark.parametrize(
    ("request_", "status", "what", "fix"),
    [
        (("POST", "/judge", "{"), 422, "not JSON", "JSON object"),
        (("POST", "/judge", []), 422, "valid dictionary", "response, prompt, answer"),
        (("POST", "/judge", {"response": 3, "prompt": ""}), 422, "`response`: .*; `answer`: ", "solution"),
        (("GET", "/scores", None), 404, "GET /scores is not answered", "POST /score"),
        (("GET", "/judge", None), 405, "GET /judge is not answered", "POST /judge"),
        (("GET", "/score", None), 405, "GET /score is not answered", "POST /score"),
    ],
)
def test_an_invalid_question_is_reported_in_the_usual_form(
    request_: tuple[str, str, Any], status: int, what: str, fix: str
) -> None:
    (answer,) = asked(request_, given=recipe(), headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert re.search(what, answer.json()["error"]["what"])
    assert fix in answer.json()["error"]["fix"]


def test_without_any_reward_section_a_request_is_refused() -> None:
    (answer,) = asked(("POST", "/score", {"items": []}))
    assert answer.status_code == 422
    assert "--recipe" in answer.json()["error"]["fix"]


def test_a_recipe_with_a_fixed_threshold_is_the_default_for_requests_without_one() -> None:
    fixed = IouSchedule(schedule="fixed", thresholds=(0.5,), until=(), target=None)
    staged = IouSchedule(schedule="staged", thresholds=(0.5, 0.9), until=(0.5,), target=None)
    loose = dataclasses.replace(sample_of("detection"), verifier_parm=without_iou("detection"))
    item = item_of(*told(loose, wrap(CASES["detection"].gold)))
    (right,) = asked(("POST", "/score", item), given=recipe().model_copy(update={"iou": fixed}))
    assert (right.status_code, right.json()["reward"]["accuracy"]) == (200, 1.0)
    (unsaid,) = asked(("POST", "/score", item), given=recipe().model_copy(update={"iou": staged}))
    assert unsaid.status_code == 422
    assert "no IoU threshold" in unsaid.json()["error"]["what"]


def without_iou(verifier: str) -> dict[str, Any]:
    return {key: value for key, value in sample_of(verifier).verifier_parm.items() if key != "iou"}


def test_a_bug_is_500_only_for_its_item(monkeypatch: pytest.MonkeyPatch) -> None:
    from vtune.reward import service

    sound = service.score_trajectory

    async def broken(question: Sample, *rest: Any) -> Any:
        if question.id == "bad":
            raise ZeroDivisionError("oh")
        return await sound(question, *rest)

    monkeypatch.setattr(service, "score_trajectory", broken)
    good = item_of(*told(sample_of("exact"), wrap(CASES["exact"].gold)))
    bad = item_of(*told(dataclasses.replace(sample_of("exact"), id="bad"), wrap("x")))
    both, metrics = asked(
        ("POST", "/score", {"items": [bad, good]}), ("GET", "/metrics", None), given=recipe()
    )
    first, second = both.json()["results"]
    assert (first["status"], first["reward"], second["status"]) == (500, None, 200)
    assert "ZeroDivisionError: oh" in first["error"]["what"]
    assert "broken" not in first  # our bug, not a broken user part
    assert status_of(RunFailed("verifier `mine` is broken")) == 500  # also for /judge
    assert 'vtune_reward_errors_total{status="500",verifier="unknown"} 1.0' in metrics.text


def test_metrics_report_count_errors_and_seconds_by_verifier() -> None:
    good = item_of(*told(sample_of("exact"), wrap("x")))
    bad = item_of(*told(sample_of("choice", gold="E"), wrap("x")))
    strange = item_of(*told(dataclasses.replace(sample_of("exact"), verifier="exakt"), wrap("x")))
    *_, metrics = asked(
        ("POST", "/score", {"items": [good, good, bad, strange]}), ("GET", "/metrics", None), given=recipe()
    )
    assert metrics.headers["content-type"].startswith("text/plain")
    lines = metrics.text.splitlines()
    assert 'vtune_reward_trajectories_total{verifier="exact"} 2.0' in lines
    assert 'vtune_reward_errors_total{status="422",verifier="choice"} 1.0' in lines
    assert 'vtune_reward_errors_total{status="422",verifier="unknown"} 1.0' in lines
    assert 'vtune_reward_seconds_count{verifier="exact"} 2.0' in lines


def basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def test_with_a_token_only_its_bearer_is_answered_except_for_health_checks() -> None:
    paths = [("GET", "/health", None), ("GET", "/metrics", None), ("POST", "/score", {"items": []})]
    for headers, wanted in (
        ({}, [200, 401, 401]),
        ({"Authorization": f"Bearer {TOKEN}x"}, [200, 401, 401]),
        ({"Authorization": f"Bearer {TOKEN}"}, [200, 200, 200]),
        ({"Authorization": basic(f"any:{TOKEN}")}, [200, 200, 200]),
        ({"Authorization": basic(f"{TOKEN}:")}, [200, 401, 401]),
        ({"Authorization": basic(TOKEN)}, [200, 401, 401]),
        ({"Authorization": f"Basic {TOKEN}"}, [200, 401, 401]),
        ({"Authorization": basic(f"any:{TOKEN}"), "Origin": "https://example.com"}, [200, 401, 401]),
        ({"Authorization": basic(f"any:{TOKEN}"), "Sec-Fetch-Site": "cross-site"}, [200, 401, 401]),
        ({"Authorization": basic(f"any:{TOKEN}"), "Sec-Fetch-Site": "same-origin"}, [200, 200, 200]),
    ):
        answers = asked(*paths, given=recipe(), token=TOKEN, headers=headers)
        assert [one.status_code for one in answers] == wanted
        if 401 in wanted:
            assert answers[-1].headers["www-authenticate"] == 'Bearer, Basic realm="vtune"'
            assert "password of HTTP Basic" in answers[-1].json()["error"]["fix"]
    assert answers[0].json()["verifiers"] == sorted(VERIFIERS)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:8192"}, 200),
        ({"Host": "127.0.0.1:8192"}, 200),
        ({"Host": "[::1]:8192"}, 200),
        ({"Host": "node7:8192"}, 200),
        ({"Host": "localhost:8192", "Origin": "http://localhost:8192"}, 200),
        ({"Host": "rebound.example.com:8192"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Host": "localhost:8192", "Origin": "https://example.com"}, 403),
        ({"Host": "localhost:8192", "Origin": "http://localhost:3000"}, 403),
        ({"Host": "localhost:8192", "Origin": "null"}, 403),
        ({"Host": "localhost:8192", "Sec-Fetch-Site": "none"}, 200),
        ({"Host": "localhost:8192", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "localhost:8192", "Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_without_a_token_no_web_page_can_reach_the_service_through_a_browser(
    headers: dict[str, str], status: int
) -> None:
    """Neither under a host name that now resolves here, nor from its own origin."""
    (answer,) = asked(("POST", "/score", {"items": []}), given=recipe(), headers=headers)
    assert answer.status_code == status
    if status == 403:
        assert "--token-file" in answer.json()["error"]["fix"]
    # With a token, only the token matters, whatever the host name.
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    (answer,) = asked(
        ("POST", "/score", {"items": []}), given=recipe(), token=TOKEN, headers=headers | bearer
    )
    assert answer.status_code == 200


def test_a_body_too_large_or_of_unknown_length_is_refused_unread(served: Served) -> None:
    (large,) = asked(("POST", "/score", "x" * 2001), max_bytes=2000)
    assert large.status_code == 413
    (fits,) = asked(("POST", "/score", "x" * 2000), max_bytes=2000)
    assert fits.status_code == 422
    host, port = served.url.removeprefix("http://").split(":")
    chunked = "Transfer-Encoding: chunked"
    for header, status in (
        ("Content-Length: 99999999999", b"413"),
        (chunked, b"411"),
        # A length together with chunked encoding is not valid HTTP for the parser.
        (f"Content-Length: 1\r\n{chunked}", b"400"),
    ):
        with socket.create_connection((host, int(port)), timeout=60) as line:
            line.sendall(f"POST /score HTTP/1.1\r\nHost: {host}\r\n{header}\r\n\r\n".encode())
            assert line.recv(1000).split()[1] == status


def test_oversized_batches_are_split_and_oversized_items_unscored() -> None:
    long = "so " * 300_000
    pairs = [told(sample_of("exact"), f"<think>{long}</think><answer>{n}</answer>") for n in range(6)]
    pairs.append(told(sample_of("exact"), f"<think>{2 * long}</think><answer>7</answer>"))
    pairs = [
        (dataclasses.replace(one, id=f"{n}"), dataclasses.replace(done, sample_id=f"{n}"))
        for n, (one, done) in enumerate(pairs)
    ]
    with serving("--workers", "1", "--max-mb", "1") as one:
        *found, large = score(pairs, recipe(service=[one.url]))
    assert found == score(pairs[:6], recipe())
    assert large.reward is not None
    assert large.reward.total is None
    assert "takes no request that large: HTTP 413" in large.reward.why


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "example.org"])
def test_other_machines_are_admitted_only_with_a_token(host: str) -> None:
    with pytest.raises(RecipeError, match="--token-file"):
        check_token(host, None)
    check_token(host, TOKEN)


def test_this_machine_needs_no_token_and_a_weak_one_is_refused() -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        check_token(host, None)
        for weak in ("", "short", "x" * 15, "ü" * 20, "x" * 20 + "\n", "x y" * 20):
            with pytest.raises(RecipeError, match="at least 16"):
                check_token(host, weak)


def test_a_token_is_read_without_its_line_break(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(file) == TOKEN
    with pytest.raises(RecipeError, match="cannot read the token file"):
        read_token(tmp_path / "none")


def test_the_command_refuses_invalid_options(tmp_path: Path, served: Served) -> None:
    port = served.url.rsplit(":", 1)[-1]
    for words, said in (
        (["--host", "0.0.0.0"], "anyone who reaches 0.0.0.0"),
        (["--port", port], "cannot listen on"),
    ):
        ended = vtune("serve", "rewards", *words)
        assert (ended.code, ended.out) == (2, "")
        assert said in ended.err
        assert "  fix  " in ended.err
        assert "Traceback" not in ended.err


def test_a_worker_that_dies_costs_one_request_and_never_a_zero(served: Served) -> None:
    question, done = told(sample_of("math"), wrap(CASES["math"].gold))
    item = {"reward": settings_of(recipe()), **item_of(question, done)}
    with httpx2.Client(base_url=served.url, timeout=60) as http:
        assert http.post("/score", json=item).json()["reward"]["accuracy"] == 1.0
        worker, _ = served.workers()  # the second worker is for slow replies
        os.kill(worker, signal.SIGSTOP)
        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(http.post, "/score", json=item)
            time.sleep(0.5)  # by then the worker has the request
            os.kill(worker, signal.SIGKILL)
            lost = waiting.result()
        assert lost.status_code == 500
        assert "worker of verifier `math` died" in lost.json()["error"]["what"]
        assert lost.json()["reward"]["accuracy"] is None
        assert http.post("/score", json=item).json()["reward"]["accuracy"] == 1.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_service_ends_at_once_and_leaves_nothing_behind(number: signal.Signals) -> None:
    with serving("--workers", "2") as one:
        below = children(one.process.pid)
        assert len(below) >= 2
        one.process.send_signal(number)
        code = one.process.wait(timeout=60)
        assert code == (-9 if number == signal.SIGKILL else 0)
        assert one.process.stderr is not None
        assert number == signal.SIGKILL or one.process.stderr.read() == ""
        ends = time.monotonic() + 60
        while any(alive(pid) for pid in below) and time.monotonic() < ends:
            time.sleep(0.02)
        assert not any(alive(pid) for pid in below)
        with socket.create_server(("127.0.0.1", int(one.url.rsplit(":", 1)[-1]))):
            pass


def test_a_run_whose_services_are_down_is_unscored_and_stops() -> None:
    service = {"urls": ["http://127.0.0.1:9"], "deadline_s": 0.5}
    pairs = [told(sample_of("exact"), wrap("x"))]
    scored = score(pairs, recipe(service=service))
    assert scored[0].reward is not None
    assert scored[0].reward.total is scored[0].reward.accuracy is None

    with pytest.raises(RunFailed, match=r"100\.0% .*unscored(.|\n)*no reward service answered"):
        check_unscored(scored, 0.05)
