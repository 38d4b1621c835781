"""One trajectory in the terminal: the question, every turn with its calls, boxes drawn, the reward."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from vtune.report.numbers import GAP, number
from vtune.report.sketch import sketch

TARGET = "*"
"""Mark of evidence boxes in sketches; regions that calls show are marked with the call's number."""
TRUTH, ANSWER = "t", "a"
"""Marks of the boxes in the ground truth and the answer."""

COLUMNS = (
    "key",
    "step",
    "source",
    "right",
    "faithful",
    "reward",
    "calls",
    "flags",
    "tokens",
    "stop",
    "answer",
)
"""Facts shown in a list."""
ORDINARY = {"stop": "answer"}
"""Fact -> its ordinary value, which needs no column."""


def render_trajectory(document: Mapping[str, Any]) -> RenderableType:
    """The result of `vtune.view.document.document_of`."""
    return Group(
        _head(document), *_asked(document), *_turns(document), *_pictures(document), *_earned(document)
    )


def render_list(result: Mapping[str, Any]) -> RenderableType:
    """The result of `vtune.runs.view.show.run_list`: the first trajectories that match a query."""
    table = Table()
    shown = [
        name
        for name in COLUMNS
        if any(row[name] not in (None, "", ORDINARY.get(name)) for row in result["trajectories"])
    ]
    for name in ["key", *shown[1:]] if shown else []:
        table.add_column(name, overflow="fold", justify="left" if name in ("key", "source") else "right")
    for row in result["trajectories"]:
        partial = row["accuracy"] if row.get("accuracy") not in (None, 0, 1) else row["right"]
        table.add_row(*(Text(_cell((row | {"right": partial})[name])) for name in shown))
    more = result["found"] - len(result["trajectories"])
    line = f"{result['path']}: {result['found']} of {result['all']}"
    fix = f"; {more} more: --limit, or --where to look for fewer" if more else ""
    below = [Text(result[name]) for name in ("hint", "unfinished") if result[name]]
    return Group(table, Text(f"{line}{fix}"), *below)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return GAP
    return number(value) if isinstance(value, int | float) else " ".join(str(value).split())[:40]


def _head(document: Mapping[str, Any]) -> Text:
    facts = [str(document["source"]), f"sample {document['sample']}"]
    for name in ("step", "group", "rollout"):
        if document.get(name) is not None:
            facts.append(f"{name} {document[name]}")
    accuracy = ((document.get("reward") or {}).get("parts") or {}).get("accuracy")
    right = {True: "right", False: "wrong", None: ""}[document.get("right")]
    if accuracy not in (None, 0, 1):
        right = f"accuracy {number(accuracy)}"
    look = "needs no look" if document.get("needs_look") is False else ""
    stop = document.get("stop")
    ended = "" if stop in (None, "answer") else f"stopped by: {stop}"
    sampled = f"{document['sampled']} tokens sampled" if document.get("sampled") else ""
    return Text("  ".join(filter(None, (document["key"], right, ", ".join(facts), look, sampled, ended))))


def _asked(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    asked = document["asked"]
    if asked is None:
        if document["why_not_asked"]:
            yield Text(f"ground truth and boxes: {document['why_not_asked']}")
        return
    truth = " ".join(str(asked["ground_truth"]).split())
    yield Text(f"ground truth  {truth[:300]}  (verifier {asked['verifier']})")
    if asked["choices"]:
        yield Text("choices  " + "; ".join(asked["choices"]))


def _turns(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    for turn in document["turns"]:
        yield Rule(Text(turn["by"] if turn["role"] != "system" else "system"), align="left", characters="─")
        for part in turn["parts"]:
            if part["kind"] == "picture":
                yield Text(f"[picture {part['picture']}]")
            else:
                yield Text(part["text"].strip("\n"))
        for k in turn["calls"]:
            yield Padding(_call(k, document["calls"][k]), (0, 0, 0, 2))


def _call(k: int, call: Mapping[str, Any]) -> RenderableType:
    lines = [f"call {k}: {call['tool']}, {call['status']}, {call['seconds']:.2f} s"]
    lines += [f"error: {call['error']}"] if call["error"] else []
    lines += ["red flags: " + ", ".join(call["flags"])] if call["flags"] else []
    for crop in call["crops"]:
        box = ", ".join(number(round(side, 1)) for side in crop["box"])
        shown = GAP if crop["shown"] is None else f"picture {crop['shown']}"
        look = f", {crop['look']}" if crop["look"] else ""
        lines.append(f"showed [{box}] of picture {crop['picture']} as {shown}{look}")
    scored = [f"{name} {number(call[name])}" for name in ("score", "advantage") if call[name] is not None]
    lines += ["; ".join(scored)] if scored else []
    return Text("\n".join(lines))


def _pictures(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    """A sketch of every picture with a box; only the size of the others."""
    yield Rule(Text("pictures"), align="left", characters="─")
    for index, picture in enumerate(document["pictures"]):
        if picture["problem"]:
            yield Text(f"picture {index} ({picture['origin']}) cannot be shown: {picture['problem']}")
            continue
        yield Text(f"picture {index} ({picture['origin']}): {picture['width']} x {picture['height']} px")
        boxes = _boxes(document, index)
        if boxes:
            lines = sketch(picture["width"], picture["height"], boxes)
            yield Text("\n".join(lines), no_wrap=True)
    marks = {mark for index in range(len(document["pictures"])) for mark, _ in _boxes(document, index)}
    said = {TARGET: "evidence", TRUTH: "ground truth", ANSWER: "answer"}
    legend = [f"{mark}: {words}" for mark, words in said.items() if mark in marks]
    legend += ["0-9: what that call showed"] if any(map(str.isdigit, marks)) else []
    if legend:
        yield Text("; ".join(legend))
    for one in document["boxes"]["answer"]:
        yield Text(_answer(one))


def _answer(one: Mapping[str, Any]) -> str:
    """What an answered box or point hits."""
    x0, y0, x1, y1 = (number(round(side, 1)) for side in one["box"])
    of = one["meets"] or "the ground truth"
    if one["iou"] is None:
        return f"answered ({x0}, {y0}): " + ("outside every box" if one["meets"] is None else f"in {of}")
    named = " ".join(filter(None, ("answered", one["label"], f"[{x0}, {y0}, {x1}, {y1}]")))
    return f"{named}: " + (
        "overlaps no box" if one["meets"] is None else f"IoU {number(one['iou'])} with {of}"
    )


def _boxes(document: Mapping[str, Any], index: int) -> list[tuple[str, Sequence[float]]]:
    """The boxes on a picture with their marks; evidence boxes come last, drawn over the others."""
    found: list[tuple[str, Sequence[float]]] = [
        (str(k % 10), crop["box"])
        for k, call in enumerate(document["calls"])
        for crop in call["crops"]
        if crop["picture"] == index
    ]
    if index == 0:
        named = document["boxes"]
        found += [(TRUTH, one["box"]) for one in named["truth"]]
        width, height = (document["pictures"][0][side] or 0 for side in ("width", "height"))
        found += [
            (ANSWER, one["box"])
            for one in named["answer"]
            if one["box"][0] < width and one["box"][1] < height and min(one["box"][2:]) >= 0
        ]
    evidence = (document["asked"] or {}).get("evidence", ())
    return found + [(TARGET, one["box"]) for one in evidence if one["picture"] == index]


def _earned(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    reward = document["reward"]
    if reward is None:
        return
    table = Table(title="reward", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    rows = {
        "total": reward["total"],
        **reward["parts"],
        **reward["facts"],
        "advantage": document["advantage"],
    }
    for name, value in rows.items():
        if value is not None or name in ("total", "accuracy"):
            table.add_row(Text(name), number(value))
    table.add_row("why", Text(reward["why"] or GAP))
    if document["outcome"] is not None:
        outcome = document["outcome"]
        table.add_row("outcome", Text(f"{number(outcome['score'])}: {outcome['why']}"))
    yield table
