"""Whether `reward.counterfactual` can be earned: it needs looks, and questions with different answers."""

from vtune.environments import DEFAULT, name_of
from vtune.errors import RecipeError
from vtune.reward.evidence import needs_look
from vtune.reward.recipe import EvidenceLevels
from vtune.runs.agent.exchanges import answers_differ
from vtune.schema.sample import Sample


class Lending:
    """Which sources have questions with different right answers; fed row by row.

    Args:
        levels: Say which questions need a look.
    """

    def __init__(self, levels: EvidenceLevels) -> None:
        self._levels = levels
        self._first: dict[str, Sample] = {}
        """The first sample of each source that may lend its target."""
        self._differ: set[str] = set()
        self._asked: set[str] = set()

    def see(self, sample: Sample) -> None:
        """Add the next row."""
        offers = bool(sample.tools) and name_of(sample) == DEFAULT
        if offers and needs_look(sample, self._levels):
            self._asked.add(sample.source)
        # A look at a picture can be lent, too.
        if offers or sample.evidence:
            first = self._first.setdefault(sample.source, sample)
            if sample.source not in self._differ and answers_differ(first, sample):
                self._differ.add(sample.source)

    def stuck(self) -> list[str]:
        """Sources in which no question can lend its target to another: all right answers are the same.

        Raises:
            RecipeError: If no question needs a look, or no source remains.
        """
        if not self._asked:
            raise RecipeError(
                "no question needs a look, so nobody can earn `counterfactual`",
                where="reward.counterfactual",
                fix="name abilities or sources of the data in reward.evidence.search_abilities or "
                "reward.evidence.search_sources, use data with evidence boxes and tools, or leave it out",
            )
        stuck = sorted(self._asked - self._differ)
        if len(stuck) == len(self._asked):
            raise RecipeError(
                "no question can be shown the target of another: it must be of the same source, and have "
                "another right answer",
                where=f"reward.counterfactual; sources {', '.join(map(repr, stuck))}",
                fix="give several questions per source, with different answers, or leave it out",
            )
        return stuck
