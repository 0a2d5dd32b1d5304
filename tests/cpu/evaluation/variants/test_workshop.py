"""The workshop: copies for the length of a block, names that do not exist refused."""

from __future__ import annotations

import pytest
from safetensors import SafetensorError

from slipstream.base.errors import CapacityError, ConfigError
from slipstream.config.checkpoint import read_target
from slipstream.evaluation.changes import Workshop
from slipstream.evaluation.variants import workshop as module
from slipstream.evaluation.variants.features import FEATURES
from slipstream.evaluation.variants.workshop import CopyWorkshop
from support.tiny_checkpoints import make_tiny_checkpoint, make_tiny_eagle3


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return make_tiny_checkpoint(tmp_path_factory.mktemp("source"), vision=False)


def test_a_copy_lasts_as_long_as_its_block(source):
    workshop: Workshop = CopyWorkshop(source, None)
    assert [change.feature for change in workshop.changes] == [feature.change.feature for feature in FEATURES]
    assert workshop.num_bytes == (source / "model.safetensors").stat().st_size
    with workshop.variant("activation alpha") as folder:
        assert folder is not None
        assert folder.name == source.name
        assert read_target(folder).swiglu_alpha == 1.0
    assert not folder.parent.exists()


def test_a_feature_that_the_checkpoint_lacks_gives_no_folder(source, tmp_path):
    dense = make_tiny_checkpoint(tmp_path, vision=False, sparse=(0, 0), num_layers=2)
    with CopyWorkshop(dense, None).variant("block selection: full") as folder:
        assert folder is None


def test_unknown_names_are_refused(source):
    with (
        pytest.raises(ConfigError, match="feature 'magic' cannot be switched off; allowed: norm gain"),
        CopyWorkshop(source, None).variant("magic"),
    ):
        pass
    with pytest.raises(ConfigError, match="none without a head"), CopyWorkshop(source, None).control("untrained"):
        pass


def test_controls_need_a_head(source, tmp_path):
    assert CopyWorkshop(source, None).controls == ()
    head = make_tiny_eagle3(tmp_path, read_target(source))
    workshop = CopyWorkshop(source, head)
    assert workshop.controls == ("untrained", "shuffled features")
    with workshop.control("untrained") as folder:
        assert (folder / "model.safetensors").is_file()
    assert not folder.exists()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("I/O error")])
def test_a_full_disk_is_a_refusal_that_a_run_survives(source, tmp_path, monkeypatch, error):
    def fail(*arguments):
        raise error

    for name in ("write_variant", "write_control"):
        monkeypatch.setattr(module, name, fail)
    workshop = CopyWorkshop(source, make_tiny_eagle3(tmp_path, read_target(source)))
    for block in (workshop.variant("activation alpha"), workshop.control("untrained")):
        with pytest.raises(CapacityError, match="could not be written .*; make room, or set TMPDIR"), block:
            pass
