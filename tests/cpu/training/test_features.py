"""The target as training reads it, against the engine that serves it."""

from __future__ import annotations

import msgspec
import pytest
import torch

from slipstream.base.errors import UnsupportedFeature
from slipstream.config.schema import ParallelSection
from slipstream.frontend.llm import LLM
from slipstream.training import features as features_module
from slipstream.training.data.batches import pad_texts
from slipstream.training.data.texts import make_text
from slipstream.training.features import TargetFeatures
from slipstream.wire.sampling_params import SamplingParams
from support.train_world import engine_config, make_target

TAPS = (0, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_target(tmp_path_factory.mktemp("target"))[0]


@pytest.fixture(scope="module")
def features(folder):
    return TargetFeatures(engine_config(folder, max_model_len=128), TAPS)


def texts(*lengths, seed=0):
    source = torch.Generator().manual_seed(seed)
    ids = [torch.randint(0, 300, (length,), generator=source).tolist() for length in lengths]
    return pad_texts([make_text(tuple(one), 2, 0.0, 0) for one in ids])


def test_favourites_and_probabilities_are_those_of_the_engine(folder, features):
    batch = texts(70, 9, 33)
    kept = torch.arange(features.spec.vocab_size)
    read = features.read(batch, kept)
    params = SamplingParams(max_tokens=1, prompt_logprobs=1, temperature=0.0)
    with LLM(str(folder), drafter="none", device="cpu", max_model_len=128, threads=1) as llm:
        rows = [ids[:length] for ids, length in zip(batch.token_ids.tolist(), batch.lengths, strict=True)]
        answers = llm.generate(rows, params)
    for row, (answer, length) in enumerate(zip(answers, batch.lengths, strict=True)):
        assert read.favourites[row, length - 1] == answer.token_ids[0]
        own = read.kept_probs[row, : length - 1].log().gather(1, batch.token_ids[row, 1:length, None])[:, 0]
        torch.testing.assert_close(own, torch.tensor(answer.prompt_logprobs), atol=2e-4, rtol=0)
        favourites = [tops[0][0] for tops in answer.prompt_top_logprobs]
        assert read.favourites[row, : length - 1].tolist() == favourites


def test_kept_probabilities_are_renormalised(features):
    batch = texts(20)
    kept = torch.tensor([3, 50, 51, 200])
    whole = features.read(batch, torch.arange(features.spec.vocab_size)).kept_probs[..., kept]
    part = features.read(batch, kept).kept_probs
    torch.testing.assert_close(part, whole / whole.sum(-1, keepdim=True))


def test_a_text_reads_the_same_in_any_company_and_in_any_chunks(features, monkeypatch):
    kept = torch.arange(40)
    together = features.read(texts(70, 9, 33), kept)
    alone = features.read(pad_texts([make_text(tuple(together.token_ids[2, :33].tolist()), 2, 0.0, 0)]), kept)
    monkeypatch.setattr(features_module, "CHUNK_TOKENS", 16)
    chunked = features.read(texts(70, 9, 33), kept)
    for name in ("taps", "embeddings", "kept_probs"):
        torch.testing.assert_close(getattr(together, name)[2, :33], getattr(alone, name)[0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(getattr(together, name), getattr(chunked, name), atol=1e-5, rtol=1e-4)


def test_nothing_stands_behind_a_texts_end(features):
    read = features.read(texts(12, 5), torch.arange(40))
    for values in (read.taps, read.embeddings, read.kept_probs, read.favourites, read.is_written):
        assert not values[1, 5:].any()
        assert values[1, 4].any()


def test_taps_are_those_of_the_layers_asked_for(folder, features):
    batch = texts(20)
    width = features.spec.hidden_size
    both = features.read(batch, torch.arange(4)).taps
    second = TargetFeatures(engine_config(folder, max_model_len=128), TAPS[1:]).read(batch, torch.arange(4)).taps
    torch.testing.assert_close(both[..., width:], second)
    assert not both[..., :width].allclose(second)


@pytest.mark.parametrize("rows_at_once", [7, 512])
def test_the_rows_of_the_head_give_the_logits(features, monkeypatch, rows_at_once):
    monkeypatch.setattr(features_module, "LOGIT_ROWS", rows_at_once)
    _, hidden = features.forward(torch.tensor([5, 6, 7]), (3,))
    logits = features._model.compute_logits(hidden)
    torch.testing.assert_close(hidden.float() @ features.head_rows(torch.tensor([9, 2])).T, logits[:, [9, 2]])


def test_no_gradient_is_kept_of_the_target(features):
    read = features.read(texts(12), torch.arange(40))
    assert not any(value.requires_grad for value in (read.taps, read.embeddings, read.kept_probs))


def test_more_than_one_rank_is_refused(folder):
    config = msgspec.structs.replace(engine_config(folder), parallel=ParallelSection(tp_size=2, check_ranks=False))
    with pytest.raises(UnsupportedFeature, match="tp=2: training reads the target on one device"):
        TargetFeatures(config, TAPS)
