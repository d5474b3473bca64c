"""What a program's functions do, by the names of their calls."""

from __future__ import annotations

from monitor.model.steps.sampled_calls import CHECKPOINT, LOGGING, kinds_of
from trainhooks.protocol.calls import FILE, FSYNC, TORCH_SAVE
from trainhooks.protocol.places import Place


def test_what_saves_a_checkpoint_opens_and_syncs_its_file_for_that() -> None:
    save = Place("train.py", 10, "keep", "torch.save", TORCH_SAVE)
    sync, opened = Place("train.py", 11, "keep", "os.fsync", FSYNC), Place("train.py", 9, "keep", "open", FILE)
    log, script = (
        Place("train.py", 30, "report", "os.fsync", FSYNC),
        Place("train.py", 50, "<module>", "os.fsync", FSYNC),
    )
    other = Place("train.py", 51, "<module>", "torch.save", TORCH_SAVE)
    kinds = kinds_of([save, sync, opened, log, script, other])
    assert [kinds[place] for place in (save, sync, opened, other)] == [CHECKPOINT] * 4
    assert [kinds[place] for place in (log, script)] == [LOGGING] * 2
