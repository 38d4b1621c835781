"""A place opened for viewing: its index, its samples' questions, its labels, and one document at a time."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from vtune.errors import DataError, RecipeError, VtuneError
from vtune.report.progress import Rows
from vtune.reward.recipe import RewardRecipe
from vtune.runs.audit.located import locate
from vtune.runs.view.asked import Asked
from vtune.schema.labels import Label, read_labels
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.view.document import document_of, read_record
from vtune.view.index import Index
from vtune.view.place import Place, stamp, stamp_if_there
from vtune.view.query import hint_of, of_sample, parse_query, select
from vtune.view.tokens import tokens_of

KEPT = 8
"""Records that are kept because their pictures are requested next (ours)."""
ROUNDING = 1e-4
"""Rounding error of a stored reward (ours)."""

Record = Trajectory | Sample


class Opened:
    """A place with its index.

    Args:
        place: The place.
        data: Files of the samples that its trajectories answer; if empty, the run's own.
        show: Whether to show progress.

    A file that cannot be read is skipped, and `problems` says why: it does not hide the others.

    Raises:
        DataError: If the place is gone, or one of its files is a link that leads out of it.
    """

    def __init__(self, place: Place, data: Sequence[Path] = (), *, show: bool = True) -> None:
        self.place = place
        # A page sends several requests at once, each handled in its own thread.
        self._lock = threading.Lock()
        self._records: OrderedDict[tuple[str, str], Record] = OrderedDict()
        self._vocabulary: tuple[Callable[[int], str] | None, str] | None = None
        self._paid: RewardRecipe | None = None
        self._data = tuple(map(str, data))
        self.index = Index(place)
        self._settings = ""
        self._asked = self._settled()
        self._show = show
        self.refresh()
        self._show = False  # a viewer polls every few seconds

    def refresh(self) -> bool:
        """Take in what the run has written since; return whether there was anything.

        Raises:
            DataError: If the place is gone, or one of its files is a link that leads out of it.
        """
        with self._lock, Rows(f"index of {self.place.name}", show=self._show) as progress:
            changed = self.index.refresh(progress.advance)
            # Until its first trajectories exist, a run has no known questions. Another run may replace it.
            if (changed and not self._asked.has_source) or self._settings != self._stamp():
                self._vocabulary = None
                self._asked = self._settled()
                self.index.refresh(progress.advance)
            return changed

    @property
    def problems(self) -> list[str]:
        """Why some of its files are skipped, or that all of it is gone."""
        gone = self.place.gone()
        return [error_line(error) for error in (self.index.failed if gone is None else [gone])]

    def labels(self) -> dict[str, Label]:
        """Key of a trajectory -> the label that a person gave it.

        If a run has since regenerated a trajectory, its old label no longer applies and is left out.

        Raises:
            DataError: If the file of labels cannot be read.
        """
        said = read_labels(self.place.labels)
        table = self.index.table.select(["key", "sample", "rollout"])
        labelled = table.filter(pc.is_in(table["key"], value_set=pa.array(list(said), pa.string())))
        return {
            row["key"]: said[row["key"]]
            for row in labelled.to_pylist()
            if (row["sample"], row["rollout"]) == (said[row["key"]].sample_id, said[row["key"]].rollout)
        }

    def find(self, query: str, *, first: int = 0, most: int) -> dict[str, Any]:
        """Some of the trajectories that match a query, and their total number; `hint` if there are none.

        Raises:
            RecipeError: If the query cannot be read.
        """
        table = self.index.table
        labels = {key: str(one.label) for key, one in self.labels().items()}
        asked = parse_query(query)
        numbers = select(table, asked, labels)
        shown = table.drop_columns(["text"]).take(numbers[first : first + most]).to_pylist()
        rows = [row | {"label": labels.get(row["key"])} for row in shown]
        return {
            "all": table.num_rows,
            "found": len(numbers),
            "first": first,
            "trajectories": rows,
            "hint": None if len(numbers) else hint_of(table, asked),
        }

    def record(self, key: str) -> tuple[Record, Path, int]:
        """The record with a key, with its file and row.

        Raises:
            DataError: If there is none, or it cannot be read.
        """
        with self._lock:
            file, row = self.index.locate(key)
            try:
                name = key, stamp(file)
            except OSError as error:
                raise DataError(
                    f"{key} cannot be opened any more: {file}: {error.strerror}",
                    where=str(file),
                    fix="open the list again; if the run was moved, start `vtune view` there",
                ) from None
            if name not in self._records:
                self._records[name] = read_record(self.place, file, row)
                if len(self._records) > KEPT:
                    self._records.popitem(last=False)
            return self._records[name], file, row

    def document(self, key: str) -> dict[str, Any]:
        """What is shown of a trajectory; its siblings are the keys of its group.

        Raises:
            DataError: If no trajectory has that key, or it cannot be read.
        """
        record, file, row = self.record(key)
        samples = self._asked  # a refresh that finds the data replaces this
        asked = None if isinstance(record, Sample) else samples.of(record.sample_id)
        why = samples.why_not or "the data have no sample of this id"
        found = document_of(self.place, file, row, record, asked, "" if asked else why)
        if found.get("reward") and self._paid is not None:
            found["reward"]["weights"] = weights_behind(found["reward"], self._paid)
        label = self.labels().get(key)
        said = None if label is None else {"label": label.label, "note": label.note}
        return found | {"siblings": self._siblings(record, found["step"]), "label": said}

    def tokens(self, key: str, *, first: int) -> dict[str, Any]:
        """Some of the tokens of a trajectory, see `vtune.view.tokens.tokens_of`.

        Raises:
            DataError: If no trajectory has that key, or it is a sample.
        """
        record, _, _ = self.record(key)
        if isinstance(record, Sample):
            raise DataError(f"{key} is a sample: it has no tokens", fix="open a run or an evaluation")
        if self._vocabulary is None or self._vocabulary[0] is None:  # a checkpoint may bring one
            from vtune.runs.view.vocabulary import vocabulary  # importing its library takes 0.2 s

            self._vocabulary = vocabulary(self.place)
        text_of, why = self._vocabulary
        return tokens_of(record, text_of, why, first=first)

    def _siblings(self, record: Record, step: int | None) -> list[dict[str, Any]]:
        """Key, rollout, reward and outcome of the rollouts of the same sample in the same step."""
        if isinstance(record, Sample):
            return []
        query = parse_query(f"step:{'none' if step is None else step} sort:rollout")
        # Only these columns: to filter all of them, with their texts, takes most of the time of a page.
        named = ["key", "sample", "step", "group", "rollout", "reward", "right", "faithful"]
        table = of_sample(self.index.table.select(named), record.sample_id)
        found = table.take(select(table, query, {})).to_pylist()
        return [row for row in found if row["group"] == record.group][:64]

    def _stamp(self) -> str:
        settings = self.place.settings
        return "" if settings is None else stamp_if_there(settings)

    def _settled(self) -> Asked:
        """The samples' questions, or why they are unknown; also passes the run's settings to the index."""
        self._settings, self._paid = self._stamp(), None
        if self.place.kind == "samples":
            return Asked(None, self.index)
        try:
            located = locate(self.place.path, self._data)
        except (DataError, RecipeError) as error:
            # Supervised runs have no trajectories, and traces may name no samples; both can still be viewed.
            return Asked(None, self.index, f"{error.what}; {error.fix}" if error.fix else error.what)
        self._paid = located.reward
        self.index.shown_from = located.reward.evidence.partial
        return Asked(located.source, self.index)


def weights_behind(reward: Mapping[str, Any], recipe: RewardRecipe) -> dict[str, float] | None:
    """The weight of each part of a reward; None if a recipe's weights do not add up to its total.

    That happens if samples have their own weights, a gate withheld a part, or another recipe did the scoring.
    """
    if recipe.weighting != "recipe" or reward["total"] is None:
        return None
    known: dict[str, float] = {name: section.weight for name, section in recipe.parts.given.items()}
    known |= {name: getattr(recipe, name) for name in ("accuracy", "format", "tool")}
    further = {"consistency": recipe.consistency, "counterfactual": recipe.counterfactual}
    known |= {name: section.weight for name, section in further.items() if section is not None}
    parts = {name: score for name, score in reward["parts"].items() if score is not None}
    if not parts.keys() <= known.keys():
        return None
    total = sum(known[name] * score for name, score in parts.items())
    return {name: known[name] for name in parts} if abs(total - reward["total"]) < ROUNDING else None


def error_line(error: VtuneError) -> str:
    """What is wrong, where, and the remedy, on one line."""
    said = "; ".join(filter(None, (error.what, error.fix)))
    return f"{error.where}: {said}" if error.where else said
