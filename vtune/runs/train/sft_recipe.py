"""The recipe of `vtune sft`."""

from typing import Self

from pydantic import Field, model_validator

from vtune.config import Uses
from vtune.models.pictures import PixelBudget
from vtune.runs.train.online_recipe import OnlineEval, check_best
from vtune.sections import Strict
from vtune.update.recipe import Checkpoints, Update


class SFTRecipe(Strict):
    """Everything that `vtune sft` needs; nothing is guessed."""

    uses: Uses = ()
    """Files with the user's own parts."""

    model: str
    """Folder or hub name."""
    data: tuple[str, ...] = Field(min_length=1)
    """Parquet files of trajectories."""
    seed: int
    epochs: float | None = Field(default=None, gt=0)
    """Passes over the traces; or give `steps`."""
    steps: int | None = Field(default=None, gt=0)
    """Updates; or give `epochs`."""
    batch_size: int = Field(gt=0)
    """Traces per update, over all processes."""
    max_tokens: int = Field(gt=0)
    """A longer trace is an error; it is not truncated."""
    images: PixelBudget
    update: Update
    eval: OnlineEval | None = None
    """Null: the weights are not evaluated during training."""
    checkpoints: Checkpoints

    @model_validator(mode="after")
    def _has_one_length(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give epochs or steps, and leave the other out (--set epochs=null)")
        return self

    @model_validator(mode="after")
    def _the_best_is_found(self) -> Self:
        check_best(self.eval, self.checkpoints)
        return self
