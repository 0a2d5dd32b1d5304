from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.base.errors import ConfigError
from slipstream.config.checkpoint import read_checkpoint
from slipstream.demo import demo_path
from slipstream.training.eagle3.design import choose_taps, design_head


@pytest.mark.parametrize(
    ("num_layers", "taps"),
    [(60, (1, 29, 56)), (12, (1, 5, 8)), (6, (1, 3, 4)), (4, (0, 2, 3)), (3, (0, 1, 2)), (2, (0, 1)), (1, (0,))],
)
def test_taps_follow_the_depth(num_layers, taps):
    assert choose_taps((), num_layers) == taps


def test_taps_that_are_asked_for_are_taken_in_order():
    assert choose_taps((4, 0), 6) == (0, 4)


@pytest.mark.parametrize("asked", [(6,), (-1, 2), (1, 1)])
def test_layers_that_are_not_there_are_refused(asked):
    with pytest.raises(ConfigError, match="give different layers from 0 to 5"):
        choose_taps(asked, 6)


def test_a_head_is_as_wide_as_its_target():
    target = read_checkpoint(Path(demo_path())).target
    head = design_head(target, (1, 3, 4), 100)
    assert (head.hidden_size, head.target_hidden_size, head.num_heads) == (256, 256, target.num_heads)
    assert (head.vocab_size, head.draft_vocab_size, head.aux_layer_ids) == (4096, 100, (1, 3, 4))
    assert (head.rotary_dim, head.rope_theta) == (target.head_dim, target.rope_theta)
    assert (head.fc_norm, head.norm_output, head.norm_before_fc, head.norm_before_residual) == (
        True,
        True,
        False,
        False,
    )
