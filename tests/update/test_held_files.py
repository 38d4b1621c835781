from pathlib import Path

import torch

from vtune.update.held_files import HeldFile


def test_a_held_file_keeps_its_content_from_when_it_was_saved(tmp_path: Path) -> None:
    whole = torch.arange(100_000, dtype=torch.float32)
    state = {"weights": whole, "share": whole[10:20], "rates": [0.1], "name": "policy"}
    held = HeldFile(tmp_path / "held.pt")
    torch.save(state, held)
    torch.save(state, tmp_path / "written.pt")
    whole.zero_()
    state["rates"][0] = 0.2  # type: ignore[index]
    assert not (tmp_path / "held.pt").exists()
    held.write_out()
    found, wanted = (torch.load(tmp_path / name) for name in ("held.pt", "written.pt"))
    assert torch.equal(found["weights"], torch.arange(100_000, dtype=torch.float32))
    assert found["share"].data_ptr() == found["weights"].data_ptr() + 40, "it lies within the weights"
    assert found["rates"] == wanted["rates"] == [0.1]
    assert (tmp_path / "held.pt").stat().st_size == (tmp_path / "written.pt").stat().st_size
