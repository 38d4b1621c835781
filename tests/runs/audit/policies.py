"""A table of every audit measure for policies with known looking behaviour, and for a trained one.

    python -m tests.runs.audit.policies runs/demo

takes the held-out puzzles, the tiny model and the trained weights of a finished demo, evaluates four scripted
policies and the trained one on the same puzzles, regenerates their right answers with every exchange, and
prints a row for each. Its output goes to the folder `policies` of the demo, and existing output is reused.
"""

import argparse
import json
import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from tests.runs.commands import setting, vtune
from tests.runs.manners import Manner, playing

POLICIES: dict[str, Manner | None] = {
    "looks at the sign and reads it": "uses",
    "looks at the sign, and knew": "ignores",
    "looks elsewhere and guesses": "elsewhere",
    "guesses without a look": "none",
    "trained (`vtune demo`)": None,
}
"""Row -> the scripted policy; None: the trained weights."""
EXCHANGES = ("shown", "black", "random", "other", "inpaint", "glyph", "recolor", "withheld")


def audit(demo: Path, manner: Manner | None, limit: int) -> dict[str, Any]:
    """Evaluate a policy on the demo's held-out puzzles and audit it.

    Returns:
        The output of `vtune faithfulness --json`.

    Raises:
        SystemExit: If a command fails, with its output.
    """
    data, out = demo / "data/heldout.parquet", demo / "policies" / (manner or "trained")
    model = demo / ("tiny" if manner else "rl/checkpoints/newest")
    played: AbstractContextManager[Any] = playing(manner, data) if manner else nullcontext()
    # Scripted turns are longer than those of the trained policy.
    drawn = setting(rollout__max_new_tokens=90, rollout__max_tokens=900) if manner else []
    with played:
        if not (out / "results.json").exists():
            if out.exists():  # left by an interrupted attempt
                shutil.rmtree(out)
            where = ("--model", model, "--out", out, "--limit", str(limit))
            _run("eval", "--suite", "lens", *where, *setting(data=f"[{data}]"), *drawn)
        return _run("faithfulness", out, "--counterfactual", ",".join(EXCHANGES), "--model", model, "--json")


def _run(*words: str | Path) -> Any:
    ended = vtune(*words)
    if ended.code:
        raise SystemExit(f"failed: vtune {' '.join(map(str, words))}\n{ended.err}")
    return json.loads(ended.out) if words[-1] == "--json" else None


def cells(audit: dict[str, Any]) -> list[str]:
    """Accuracy, the judge's share, then for each exchange the dependent share of right answers that saw a
    picture; last, the share that names what `glyph` shows."""
    exchanges = audit["counterfactual"]["exchanges"]
    return [
        share(audit["all"]["accuracy"]),
        share(audit["all"]["faithful_of_correct"]),
        *(share(exchanges[name]["dependent_of_looked"]) for name in EXCHANGES),
        share(exchanges["glyph"]["follows"]),
    ]


def share(found: dict[str, float] | None) -> str:
    """A share in percent with its interval, or a dash."""
    if found is None:
        return "–"
    return f"{100 * found['value']:.0f} [{100 * found['low']:.0f}, {100 * found['high']:.0f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demo", type=Path, help="folder of a finished `vtune demo`")
    parser.add_argument("--limit", type=int, default=64, help="puzzles for each policy")
    asked = parser.parse_args()
    heads = [
        "policy",
        "accuracy",
        "faithful, by boxes",
        *(f"`{name}`" for name in EXCHANGES),
        "says what `glyph` shows",
    ]
    print("|", " | ".join(heads), "|")
    print("|" + "---|" * len(heads))
    for name, manner in POLICIES.items():
        print("|", " | ".join([name, *cells(audit(asked.demo, manner, asked.limit))]), "|", flush=True)


if __name__ == "__main__":
    main()
