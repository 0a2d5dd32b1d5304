"""A row begins clean and keeps nothing of its former tenant."""

import torch

from slipstream.runner.rows import allocate_rows
from slipstream.wire.ids import NO_TOKEN
from slipstream.wire.sampling_params import SamplingParams
from slipstream.wire.step import RowStart


def test_a_start_overwrites_everything_the_row_held() -> None:
    rows = allocate_rows(
        max_rows=2, max_model_len=8, draft_len=2, tap_width=3, dtype=torch.float32, device=torch.device("cpu")
    )
    for name in ("num_computed_tokens", "last_token", "max_seq_len", "draft_tokens", "history", "carry_taps", "seed"):
        getattr(rows, name)[1] = 9
    params = SamplingParams(temperature=0.5, top_k=4, top_p=0.25, min_p=0.125)
    rows.start(
        RowStart(row=1, token_ids=(3, 4, 5), num_computed_tokens=0, max_seq_len=7, sampling=params, seed=-(2**63))
    )
    assert rows.num_computed_tokens[1] == 0
    assert rows.last_token[1] == 0
    assert rows.max_seq_len[1] == 7
    assert rows.draft_tokens[1].tolist() == [NO_TOKEN, NO_TOKEN]
    assert rows.history[1].tolist() == [3, 4, 5, 0, 0, 0, 0, 0]
    assert rows.carry_taps[1].tolist() == [0, 0, 0]
    sampling = rows.sampling(torch.tensor([1]))
    assert [sampling.temperature.item(), sampling.top_k.item(), sampling.top_p.item(), sampling.min_p.item()] == [
        0.5,
        4,
        0.25,
        0.125,
    ]
    assert sampling.seed.item() == -(2**63)


def test_the_scratch_row_is_greedy_and_last() -> None:
    rows = allocate_rows(
        max_rows=2, max_model_len=8, draft_len=0, tap_width=0, dtype=torch.float32, device=torch.device("cpu")
    )
    assert rows.scratch_row == 2
    sampling = rows.sampling(torch.tensor([2]))
    assert sampling.temperature.item() == 0
    assert sampling.top_p.item() == 1


def test_verification_is_a_row_s_own_and_greedy_requests_have_none_of_it() -> None:
    rows = allocate_rows(
        max_rows=3, max_model_len=8, draft_len=2, tap_width=0, dtype=torch.float32, device=torch.device("cpu")
    )
    for row, (temperature, verification) in enumerate(((0.5, "rejection"), (0.5, "coupled"), (0.0, "rejection"))):
        rows.start(
            RowStart(
                row=row,
                token_ids=(3,),
                num_computed_tokens=0,
                max_seq_len=7,
                sampling=SamplingParams(temperature=temperature),
                seed=0,
                verification=verification,
            )
        )
    index = torch.arange(4)
    found = rows.sampling(index, has_rejection=True).is_rejection
    assert found is not None
    assert found.tolist() == [True, False, False, False]
    assert rows.sampling(index).is_rejection is None
    assert not rows.keeps_draft_probs


def test_distributions_of_drafts_are_kept_but_not_for_padding() -> None:
    rows = allocate_rows(
        max_rows=3,
        max_model_len=8,
        draft_len=2,
        tap_width=0,
        dtype=torch.float32,
        device=torch.device("cpu"),
        probs_vocab_size=5,
    )
    assert rows.keeps_draft_probs
    probs = torch.rand(3, 2, 5)
    rows.store_draft_probs(torch.tensor([2, 3, 0]), probs, torch.tensor([False, True, False]))
    assert torch.equal(rows.draft_probs[[2, 0]], probs[[0, 2]])
    assert not rows.draft_probs[[1, 3]].any()
