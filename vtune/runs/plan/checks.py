"""What a recipe needs, checked on this machine, its data and its services; one function per check."""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from vtune.config import load_recipe, recipe_keys
from vtune.errors import DataError, MissingExtra, RecipeError, ServiceError, VtuneError
from vtune.models.shape import find_shape
from vtune.models.source import resolved
from vtune.reward.wire import JUDGE
from vtune.runs.agent.kinds import check_vllm
from vtune.runs.plan.asking import ask, why_silent
from vtune.runs.plan.estimate import on_disk
from vtune.runs.plan.machine import machine_of
from vtune.runs.plan.needs import evaluated
from vtune.runs.plan.plan import plan
from vtune.runs.recipes.shipped import find_shipped
from vtune.runs.train.prompt_lengths import check_first_prompts
from vtune.runs.train.rl import check_prompts
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.runs.train.sft import check_lengths, check_traces
from vtune.runs.train.sft_recipe import SFTRecipe
from vtune.schema.parquet import load_picture, read_samples, read_trajectories
from vtune.schema.pixels import size_of
from vtune.tools.http import Patience
from vtune.tools.retrieve import ROUTE
from vtune.tools.store import read_manifest

Level = Literal["ok", "warn", "fail"]

ROWS = 2000
"""Number of rows whose pictures are checked."""
SMALLEST = 28
"""Side length in pixels below which Qwen's processors reject or enlarge a picture."""
UNLISTED = ("status 404", "status 405", "status 501")
"""Statuses of an endpoint that works but does not list its models."""
KEYS = ("status 401", "status 403")
"""Statuses of an endpoint if a key is wrong or missing."""


@dataclass(frozen=True, slots=True)
class Check:
    """One fact, and what to do if it is a problem."""

    name: str
    level: Level
    found: str
    fix: str = ""


def read_recipe(name: str, overrides: Sequence[str] = ()) -> RLRecipe | SFTRecipe:
    """A recipe by its path, or by the name of a shipped one (`rl/codev` if two share a name).

    Args:
        name: Name or path of the recipe.
        overrides: `key.path=value`, applied in order.

    Raises:
        RecipeError: If it does not exist, cannot be read, or trains nothing.
    """
    path = Path(name)
    if not path.is_file():
        found = find_shipped(name)
        if found.kind not in ("rl", "sft"):
            raise RecipeError(f"{name} is not a training recipe", fix="`vtune recipes list` shows what ships")
        path = found.path
    draws = "rollout" in recipe_keys(path)
    kind: type[RLRecipe] | type[SFTRecipe] = RLRecipe if draws else SFTRecipe
    recipe: RLRecipe | SFTRecipe = load_recipe(path, kind, overrides)
    return recipe.model_copy(update={"model": resolved(recipe.model)})


def check_recipe(recipe: RLRecipe | SFTRecipe) -> list[dict[str, Any]]:
    """Every check of a recipe, as mappings with `name`, `level`, `found` and `fix`."""
    values = recipe.model_dump(mode="json")
    data, facts = _data(recipe)
    checks = [_model(recipe), _memory(recipe), _room_for_checkpoints(recipe, facts), *_engine(values)]
    checks += [*data, *_suites(values), *_services(values, facts)]
    return [asdict(check) for check in checks]


def _model(recipe: RLRecipe | SFTRecipe) -> Check:
    name = recipe.model
    if (Path(name) / "config.json").is_file():
        return Check("model", "ok", name)
    if Path(name).exists():
        return Check("model", "fail", f"{name} holds no config.json", "give the folder of a checkpoint")
    fix = "make it, fetch it, or name another with --set model=FOLDER"
    return Check("model", "warn", f"{name} is not a folder here: a start looks for it on the hub", fix)


def _memory(recipe: RLRecipe | SFTRecipe) -> Check:
    found = plan(recipe, machine_of(None, None))
    where = found["machine"]["said"]
    if found["fits"] is None:
        return Check(
            "memory", "warn", "the model's size is not known", "name its shape with --dry-run --shape"
        )
    text = "; ".join([f"{found['peak_gb']:g} of {found['room_gb']:g} GB ({where})", *found["notes"]])
    if found["fits"]:
        return Check("memory", "ok", text)
    return Check("memory", "fail", text, "a --dry-run of the recipe says what to change")


def _engine(values: Mapping[str, Any]) -> Iterator[Check]:
    """Whether the engine for rollouts is available."""
    if values.get("rollout", {}).get("engine") != "vllm":
        return
    try:
        check_vllm()
    except MissingExtra as error:
        yield Check("rollout engine", "fail", error.what, error.fix)
    else:
        yield Check("rollout engine", "ok", "vllm is installed")


def _room_for_checkpoints(recipe: RLRecipe | SFTRecipe, facts: Mapping[str, Any] | None) -> Check:
    """Whether the disk has room for all kept checkpoints and one more, by the size from a dry run."""
    steps = recipe.steps if facts is None else facts["steps"]
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    values = recipe.model_dump(mode="json")
    shape = find_shape(values["model"], None)
    if shape is None:
        return Check("disk", "ok", f"{free:.1f} GB free")
    disk = on_disk(values, shape[0], machine_of(None, None), steps=steps)
    text = f"{free:.1f} GB free here, checkpoints take up to {disk['together']:.1f} GB"
    if every := disk.get("and one more every"):
        text += f", and {disk['a checkpoint']:.1f} GB more every {every} steps"
    if free > disk["together"]:
        return Check("disk", "ok", text)
    return Check("disk", "fail", text, "put --out on a larger disk, or lower checkpoints.keep")


def _data(recipe: RLRecipe | SFTRecipe) -> tuple[list[Check], Mapping[str, Any] | None]:
    """What a start would find in the data, and the facts about the run; None if it would be refused."""
    absent = [name for name in recipe.data if not Path(name).is_file()]
    if absent:
        fix = "make or import it (`vtune data --help`), or name another with --set data=[FILE]"
        return [Check("data", "fail", f"there is no {name}", fix) for name in absent], None
    local = (Path(recipe.model) / "config.json").is_file()
    try:
        if isinstance(recipe, RLRecipe):
            facts = check_prompts(recipe)
            if local:
                check_first_prompts(recipe)
        else:
            facts = check_traces(recipe)
            if local:
                check_lengths(recipe)
    except VtuneError as error:
        found = f"{error.what} ({error.where})" if error.where else error.what
        return [Check("data", "fail", found, error.fix)], None
    count = f"{facts['samples']} samples" if isinstance(recipe, RLRecipe) else f"{facts['traces']} traces"
    return [Check("data", "ok", count), *_small(recipe)], facts


def _small(recipe: RLRecipe | SFTRecipe) -> Iterator[Check]:
    """Whether stock processors accept the first pictures of each file."""
    for name in recipe.data:
        looked, small, broken = 0, [], []
        for where, data in _pictures(recipe, Path(name)):
            looked += 1
            try:
                if min(size_of(data)) < SMALLEST:
                    small.append(where)
            except DataError:
                broken.append(where)
        if broken:
            fix = f"`vtune data validate {name}` lists every row"
            yield Check("pictures", "fail", f"{name}: {len(broken)} are unreadable, first {broken[0]}", fix)
        if small:
            text = f"{name}: {len(small)} of {looked} are under {SMALLEST} px a side, first {small[0]}"
            fix = "leave these rows out, or enlarge their pictures: stock processors refuse them"
            yield Check("pictures", "warn", text, fix)
        if not small and not broken:
            yield Check("pictures", "ok", f"{name}: {looked} looked at, none under {SMALLEST} px a side")


def _pictures(recipe: RLRecipe | SFTRecipe, path: Path) -> Iterator[tuple[str, bytes]]:
    """(row, encoded picture) for the questions in a file."""
    if isinstance(recipe, RLRecipe):
        shown = [sample.images for sample in islice(read_samples(path), ROWS)]
    else:
        shown = [trace.images for trace in islice(read_trajectories(path), ROWS)]
    for number, pictures in enumerate(shown):
        for picture in pictures:
            yield f"row {number}", load_picture(picture, path.parent)


def _suites(values: Mapping[str, Any]) -> Iterator[Check]:
    """The training's pixel budget compared with its suites': it alone can change scores by tens of points."""
    limit = values["images"]["max_pixels"]
    for name, one, _ in evaluated(values):
        suite = one.images.max_pixels
        if suite == limit:
            yield Check(f"pixels, {name}", "ok", f"max_pixels {limit}, as in the suite")
        else:
            text = f"max_pixels {limit} in the recipe, {suite} in the suite"
            fix = (
                f"use the same value in both, or give {name} under `eval` settings: {{images.max_pixels: "
                f"{limit}}}"
            )
            yield Check(f"pixels, {name}", "warn", text, fix)


def _services(values: Mapping[str, Any], facts: Mapping[str, Any] | None) -> Iterator[Check]:
    judge = values.get("reward", {}).get("judge")
    # Data that are not on this machine may need it.
    asked = facts is None or facts.get("judged_looks", 1) or facts.get("judged_answers", 1)
    if judge is not None:
        yield _judge(judge) if asked else Check("judge", "ok", "no row of the data needs it")
    service = values.get("reward", {}).get("service")
    if service is not None:
        yield from _rewards(service, judge)
    yield from _searches(values.get("tools") or {})
    servers = values.get("rollout", {}).get("servers", ())
    for url, why in zip(servers, why_silent(servers), strict=True):
        fix = "start it, or fix rollout.servers"
        yield Check(
            "rollout server", "fail" if why else "ok", f"{url}{': ' + why if why else ''}", fix if why else ""
        )


def _searches(tools: Mapping[str, Any]) -> Iterator[Check]:
    """Whether each search service works, accepts the token and has an index, and each index file exists."""
    for name, kind in (("text_search", "passages"), ("image_search", "pictures")):
        section = tools.get(name)
        if section is None:
            continue
        title = name.replace("_", " ")
        web = section.get("web")
        variable = web["api_key_env"] if web else section["token_env"]
        if variable and variable not in os.environ:
            yield Check(title, "fail", f"{variable} is not set", f"export {variable}=...")
        elif variable and not os.environ[variable]:
            yield Check(title, "fail", f"{variable} is empty", f"export {variable}=...")
        elif section["url"] and section["url"].rstrip("/").endswith(ROUTE):
            yield _retrieval_server(title, section)
        elif section["url"]:
            yield _search_service(title, section["url"].rstrip("/"), variable, kind)
        elif section["index"]:
            yield _index(title, Path(section["index"]), kind)
        else:
            yield Check(title, "ok", "the web" if web else "cached in the samples")


def _retrieval_server(title: str, section: Mapping[str, Any]) -> Check:
    """Whether a server with Search-R1's protocol answers a question; it reports nothing else."""
    from vtune.tools.remote import check_passages_service

    url, token = section["url"], os.environ.get(section["token_env"] or "")
    try:
        check_passages_service(url, Patience(**section["patience"]), token)
    except ServiceError as error:
        return Check(title, "fail", error.what, error.fix)
    return Check(title, "ok", f"{url} answers")


def _index(title: str, folder: Path, kind: str) -> Check:
    try:
        facts = read_manifest(folder, kind, *(["dense"] if kind == "passages" else []))
    except DataError as error:
        return Check(title, "fail", error.what, error.fix)
    return Check(title, "ok", f"{folder}: {facts[kind]} {kind}")


def _search_service(title: str, url: str, variable: str | None, kind: str) -> Check:
    text, why = ask(f"{url}/health", None)
    if why:
        return Check(
            title, "fail", f"{url}: {why}", f"start it (`vtune serve search`), or fix the URL ({kind})"
        )
    try:
        count = json.loads(text)[kind]
    except (ValueError, KeyError, TypeError):
        return Check(
            title, "fail", f"{url} is not a search service", "give the URL of a `vtune serve search`"
        )
    if count is None:
        return Check(title, "fail", f"{url} has no {kind}", "start it with an index of them")
    # A path that does not exist: with a token set, clients without one are not even told that.
    _, why = ask(f"{url}/none", os.environ.get(variable) if variable else None)
    if why == "status 401":
        return Check(title, "fail", f"{url} needs a token", "set token_env to the variable that holds it")
    return Check(title, "ok", f"{url}: {count} {kind}")


def _rewards(service: Mapping[str, Any], judge: Mapping[str, Any] | None) -> Iterator[Check]:
    """Whether each reward service works, accepts the token, and uses the judge that the recipe names."""
    variable = service["token_env"]
    token = os.environ.get(variable) if variable else None
    if variable and token is None:
        yield Check("reward service", "fail", f"{variable} is not set", f"export {variable}=..., its token")
        return
    wanted = None if judge is None else {key: judge[key] for key in JUDGE}
    for url in service["urls"]:
        text, why = ask(f"{url}/health", None)
        if why:
            fix = "start it (`vtune serve rewards`), or fix reward.service"
            yield Check("reward service", "fail", f"{url}: {why}", fix)
            continue
        _, why = ask(f"{url}/metrics", token)
        own = _own_judge(text)
        if why:
            fix = "set reward.service.token_env to the variable that holds its token"
            yield Check("reward service", "fail", f"{url}: {why}", fix)
        elif wanted is not None and own != wanted:
            fix = "start it with this recipe as --recipe"
            yield Check("reward service", "fail", f"{url} has the judge {own or 'none'}, not {wanted}", fix)
        else:
            yield Check("reward service", "ok", url)


def _own_judge(text: str) -> Any:
    """The judge that a reward service reports."""
    try:
        return json.loads(text)["judge"]
    except (ValueError, KeyError, TypeError):
        return None


def _judge(judge: Mapping[str, Any]) -> Check:
    url, model, variable = judge["base_url"], judge["model"], judge["api_key_env"]
    key = os.environ.get(variable) if variable else None
    if variable and key is None:
        return Check("judge", "fail", f"{variable} is not set", f"export {variable}=... with the judge's key")
    text, why = ask(f"{url.rstrip('/')}/models", key, proxied=True)
    if why in KEYS:
        fix = (
            f"check the key in {variable}"
            if variable
            else "set reward.judge.api_key_env to the variable that holds its key"
        )
        return Check("judge", "fail", f"{url}: {why}", fix)
    if why and why not in UNLISTED:
        port = re.search(r":(\d+)(?:/|$)", url)
        start = f"`vllm serve {model}{f' --port {port[1]}' if port else ''}`"
        return Check(
            "judge", "fail", f"{url}: {why}", f"start it, e.g. {start}, or fix reward.judge.base_url"
        )
    served = _served(text)
    if served and not {model, f"models/{model}"} & set(served):  # Gemini lists names of the second form
        return Check(
            "judge", "fail", f"{url} serves {', '.join(served)}, not {model}", "fix reward.judge.model"
        )
    return Check("judge", "ok", f"{url} answers" + (f", with {model}" if served else ""))


def _served(text: str) -> list[str]:
    """Names of the models that an endpoint lists; empty if it does not list them."""
    try:
        return [str(entry["id"]) for entry in json.loads(text)["data"]]
    except (ValueError, KeyError, TypeError):
        return []
