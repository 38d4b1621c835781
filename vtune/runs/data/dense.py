"""`vtune data index --encoder`: a dense index of passages, in a build that can be resumed."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtune.errors import MissingExtra, RecipeError, nearest
from vtune.report.progress import Rows, say
from vtune.runs.data.indexing import check_new, passages_of
from vtune.runs.start import LOCK, locked
from vtune.tools.passages import NO_DENSE, load_encoder

if TYPE_CHECKING:
    from vtune.tools.dense_build import Method


def index_dense(
    corpus: Path, out: Path, *, encoder: str, family: str, method: "Method | None" = None
) -> dict[str, Any]:
    """Build a dense index of passages; `out` appears only when complete.

    The embeddings of an interrupted build are kept in `.OUT.partial`; the same command continues from there.

    Args:
        corpus: As in `index_passages`.
        out: Folder to write; must not exist.
        encoder: Folder or hub name of the embedding model; uses a GPU if there is one.
        family: Family whose text format it was trained with, a key of `vtune.models.encoder.FAMILIES`.
        method: Search method; None decides by the number of passages.

    Returns:
        `kind`, `passages`, `width`, `method`, `part`, `encoder`, `out`, `bytes`.

    Raises:
        RecipeError: If `out` exists, the family is unknown, or the build was begun with other settings.
        DataError: If the encoder cannot be loaded, a row has no text, or the corpus has changed in the
            meantime.
        MissingExtra: If usearch is not installed.
    """
    try:
        from vtune.tools.dense_build import Callbacks, build_dense_index, is_begun, tidy_dense_index
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is not installed", fix=NO_DENSE) from None
    import torch

    from vtune.models.encoder import FAMILIES

    if family not in FAMILIES:
        raise RecipeError(f"no family of encoders is called {family!r}", fix=nearest(family, FAMILIES))
    check_new(out, corpus)
    partial = out.with_name(f".{out.name}.partial")
    model = load_encoder(encoder, FAMILIES[family], "cuda" if torch.cuda.is_available() else "cpu")
    with locked(partial):
        with Rows("index") as progress:
            callbacks = Callbacks(progress.advance, say)
            try:
                facts = build_dense_index(passages_of(corpus), partial, model, callbacks, method=method)
            except BaseException:
                if not is_begun(partial):
                    shutil.rmtree(partial)
                raise
        (partial / LOCK).unlink()
        partial.rename(out)
    tidy_dense_index(out, facts["method"])
    return facts | {"out": str(out), "bytes": sum(path.stat().st_size for path in out.iterdir())}
