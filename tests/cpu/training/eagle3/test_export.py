from __future__ import annotations

import json

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from slipstream.config.drafter import read_eagle3
from slipstream.models.eagle3.weights import load_eagle3
from slipstream.parallel.group import one_rank
from slipstream.training.eagle3.design import design_head
from slipstream.training.eagle3.export import export_head, head_config
from slipstream.training.eagle3.network import DraftNetwork
from support.eagle3_rig import make_tables
from support.train_world import make_target


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return make_target(tmp_path_factory.mktemp("target"))[1]


@pytest.mark.parametrize("is_reduced", [True, False])
def test_what_is_written_is_what_the_engine_reads(tmp_path, target, is_reduced):
    size = 20 if is_reduced else target.vocab_size
    spec = design_head(target, (0, 1, 3), size)
    network = DraftNetwork(spec, 32)
    kept = torch.arange(size) * (3 if is_reduced else 1)
    export_head(tmp_path, spec, network, kept, target.eos_token_ids)
    facts = read_eagle3(tmp_path, target)
    assert facts.spec == spec
    assert facts.unknown_fields == ()
    tables = make_tables(target.hidden_size, target.vocab_size)
    model, report = load_eagle3(
        tmp_path, facts.spec, tables, group=one_rank(), dtype=torch.float32, device="cpu", max_positions=32
    )
    assert (model.target_ids is None) == (not is_reduced)
    if is_reduced:
        assert model.target_ids.tolist() == kept.tolist()
        assert {name for name, _ in report.ignored} == {"d2t", "t2d"}
    torch.testing.assert_close(model.fc.weight, network.fc.weight.to(torch.bfloat16).float())


def test_maps_have_the_fields_meaning(tmp_path, target):
    spec = design_head(target, (0, 1, 3), 3)
    export_head(tmp_path, spec, DraftNetwork(spec, 32), torch.tensor([2, 5, 6]))
    stored = load_file(tmp_path / "model.safetensors")
    assert stored["d2t"].tolist() == [2, 4, 4]
    assert stored["t2d"].nonzero().flatten().tolist() == [2, 5, 6]
    assert stored["t2d"].shape == (target.vocab_size,)
    assert {tensor.dtype for name, tensor in stored.items() if name not in ("d2t", "t2d")} == {torch.bfloat16}
    assert "embed_tokens.weight" not in stored
    assert "midlayer.self_attn.q_proj.weight" in stored


def test_the_configuration_names_layers_as_the_field_does(tmp_path, target):
    spec = design_head(target, (0, 1, 3), 20)
    config = head_config(spec, (7,))
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2, 4]
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 2, 4]
    assert config["eos_token_id"] == 7
    assert head_config(spec, (7, 8))["eos_token_id"] == [7, 8]
    assert "eos_token_id" not in head_config(spec)
    flags = msgspec.structs.replace(spec, fc_norm=False, norm_before_fc=True, norm_output=False)
    (tmp_path / "config.json").write_text(json.dumps(head_config(flags)))
    assert read_eagle3(tmp_path, target).spec == flags
