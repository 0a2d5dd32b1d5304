from __future__ import annotations

import pytest
from safetensors.torch import load_file, save_file

from slipstream.base.errors import CheckpointError, ConfigError
from slipstream.cli.bench import peer as bench_peer
from slipstream.cli.bench.peer import TransformersContender
from slipstream.frontend.llm import LLM
from slipstream.weights.quantise import quantise_checkpoint
from slipstream.wire.sampling_params import SamplingParams
from support.tiny_llm import make_tiny_llm

PROMPT = (5, 6, 7, 8, 9, 10, 11, 12, 13)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_tiny_llm(tmp_path_factory.mktemp("tiny"))


def test_the_peer_continues_by_exactly_as_many_tokens_and_says_what_we_say(folder):
    peer = TransformersContender(folder, 1)
    theirs = peer.generate(PROMPT, 10)
    assert len(theirs.token_ids) == 10
    params = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
    with LLM(str(folder), drafter="none", threads=1, max_num_seqs=1, max_model_len=64) as llm:
        ours = llm.generate(list(PROMPT), params)[0]
    assert ours.token_ids == theirs.token_ids


def test_the_peer_gets_a_plain_copy_of_quantised_weights(tmp_path):
    sizes = {"expert_intermediate_size": 32, "shared_intermediate_size": 32}
    quantised = quantise_checkpoint(make_tiny_llm(tmp_path / "s", **sizes), tmp_path / "q", "mxfp8").folder
    theirs = TransformersContender(quantised, 1).generate(PROMPT, 10)
    params = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
    with LLM(str(quantised), drafter="none", threads=1, max_num_seqs=1, max_model_len=64) as llm:
        assert llm.generate(list(PROMPT), params)[0].token_ids == theirs.token_ids
    assert sorted(item.name for item in tmp_path.iterdir()) == ["q", "s"]


def test_a_checkpoint_with_a_tensor_missing_is_refused(folder, tmp_path):
    broken = make_tiny_llm(tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    save_file(
        {name: w for name, w in weights.items() if "layers.1.self_attn.q_proj" not in name},
        broken / "model.safetensors",
    )
    with pytest.raises(CheckpointError, match="q_proj"):
        TransformersContender(broken, 1)


def test_an_absent_package_is_one_clear_error(folder, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(bench_peer.importlib, "import_module", absent)
    with pytest.raises(ConfigError, match="make setup-dev, or pip install transformers"):
        TransformersContender(folder, 1)
