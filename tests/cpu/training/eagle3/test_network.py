"""The head that is trained against the head that is served: the same weights give the same drafts."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from slipstream.training.eagle3.network import DraftNetwork, PlainNorm
from slipstream.wire.sampling_params import SamplingParams
from support.eagle3_rig import Rig, Text, load, make_head, make_tables

GREEDY = SamplingParams(temperature=0.0)
DRAFT_LEN, LENGTH = 4, 24
DIALECTS = [
    {"fc_norm": True, "norm_output": True},
    {"norm_before_fc": True, "norm_before_residual": True},
    {"draft_vocab_size": 40, "fc_norm": True},
    {"norm_output": True, "norm_before_residual": True, "draft_vocab_size": 40},
    {"hidden_size": 32, "aux_layer_ids": (1,), "rope_theta": 50.0},
]


def trained_form(folder, spec):
    """Return the network with the weights of a folder, and the target token of each of its rows."""
    network = DraftNetwork(spec, 64)
    stored = load_file(folder / "model.safetensors")
    ids = torch.arange(spec.draft_vocab_size) + stored.get("d2t", torch.zeros(spec.draft_vocab_size, dtype=torch.int64))
    rest = {name: tensor for name, tensor in stored.items() if name not in ("d2t", "t2d", "embed_tokens.weight")}
    network.load_state_dict(rest)
    return network, ids, stored.get("embed_tokens.weight")


def drafts_of(network, ids, embedding, text, start, skew=0):
    """Unroll over a text, each start fed with its own likeliest tokens; return what one start drafts."""
    tokens = torch.tensor(text.tokens)
    rows = len(tokens) - 1
    with torch.no_grad():
        state = network.fuse(text.taps[None, :rows])
        entering, keys, values, drafts = tokens[None, 1:], [], [], []
        for step in range(DRAFT_LEN):
            positions = torch.arange(rows) + step * (1 - skew)
            logits, state = network.step(state, embedding[entering], positions, keys, values)
            entering = ids[logits.argmax(-1)]
            drafts.append(entering[0, start].item())
    return drafts


@pytest.mark.parametrize("flags", DIALECTS, ids=lambda flags: "+".join(flags))
def test_the_same_weights_give_the_same_drafts(tmp_path, flags):
    spec = make_head(tmp_path, **flags)
    tables = make_tables()
    text = Text.random(spec, LENGTH, seed=4)
    drafter, _ = load(tmp_path, spec, tables, DRAFT_LEN)
    network, ids, embedding = trained_form(tmp_path, spec)
    embedding = tables.embedding if embedding is None else embedding
    seen = set()
    for start in range(3, LENGTH - 1, 3):
        rig = Rig(drafter, [text], [GREEDY])
        rig.observe(0, 0, start + 1)
        served = rig.propose([0], [start], [0], 1)[0].tolist()
        assert drafts_of(network, ids, embedding, text, start) == served
        seen.add(tuple(served))
    assert len(seen) > 3


def test_a_wrong_position_is_noticed(tmp_path):
    spec = make_head(tmp_path, fc_norm=True, norm_output=True, rope_theta=10.0)
    text = Text.random(spec, LENGTH, seed=4)
    network, ids, embedding = trained_form(tmp_path, spec)
    embedding = make_tables().embedding if embedding is None else embedding
    pairs = [[drafts_of(network, ids, embedding, text, s, skew) for skew in (0, 1)] for s in range(3, LENGTH - 1)]
    assert any(right != wrong for right, wrong in pairs)


def test_a_norm_is_of_its_own_width_and_keeps_direction():
    norm = PlainNorm(3, 1e-6)
    out = norm(torch.tensor([3.0, 0.0, 4.0]) * 1000)
    torch.testing.assert_close(out.square().mean(), torch.tensor(1.0))
    torch.testing.assert_close(out[0] / out[2], torch.tensor(0.75))
