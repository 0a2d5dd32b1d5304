"""Two ranks that are processes: the tokens of one, agreement whatever the noise, and one clear end when one is lost."""

from __future__ import annotations

import re
import signal
import time

import pytest

from slipstream.base.errors import CheckpointError, ConfigError, EngineError, RequestError
from slipstream.engine.ranks import find_difference
from slipstream.frontend.llm import LLM
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.ranks import RowAgreement
from slipstream.wire.sampling_params import SamplingParams
from support.engine_world import make_world
from support.faulty_rank import FAULT_FILE
from support.processes import is_alive, python_path, wait_until
from support.rank_engine import RankEngine, with_ranks
from support.tiny_llm import make_tiny_llm

MODES = ["greedy", "coupled"]
SOON_S = 20.0
"""Far below the timeout of a collective (30 s here), far above what noticing a death takes."""


@pytest.fixture(autouse=True)
def _ranks_find_the_tests(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", python_path())


@pytest.fixture
def fault(tmp_path, monkeypatch):
    """Switch a fault on or off while ranks run."""
    monkeypatch.setenv(FAULT_FILE, str(tmp_path / "fault"))
    return (tmp_path / "fault").write_text


@pytest.fixture(scope="module")
def two_heads(tmp_path_factory):
    """Four KV heads, so two on each rank."""
    return make_world(tmp_path_factory.mktemp("four"), num_kv_heads=4, head={"num_kv_heads": 4})


@pytest.fixture(scope="module")
def one_head(tmp_path_factory):
    """Two KV heads, so one on each rank."""
    return make_world(tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def shared_head(tmp_path_factory):
    """One KV head, which both ranks hold; the draft layer too."""
    return make_world(tmp_path_factory.mktemp("one"), num_kv_heads=1, head={"num_kv_heads": 1, "num_heads": 2})


@pytest.fixture(scope="module")
def drafting(two_heads):
    """EAGLE-3, overlap, prompts in chunks, and too few pages for all requests at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", python_path())
        engine = RankEngine(
            with_ranks(
                two_heads.eagle_config,
                cache={"num_pages": two_heads.pages_of_longest + 6},
                scheduler={"overlap": True, "prefill_chunk_tokens": 17},
            )
        )
    yield engine
    engine.close()


def ngram(world, **choices):
    return with_ranks(world.config, speculation={"drafter": "ngram", "draft_len": 4}, **choices)


@pytest.mark.parametrize("mode", MODES)
def test_two_ranks_give_the_tokens_of_one(two_heads, drafting, mode):
    """Chunks, preemption, overlap, drafts; after every step the ranks' tokens, counts, drafts and lengths are equal."""
    assert drafting.run(two_heads.requests(mode)) == two_heads.reference_tokens(mode)
    assert drafting.core.stats().num_preemptions > 0, "the pool was large enough: the test would prove nothing"
    assert drafting.core.stats().num_draft_tokens > 0


def test_prefix_hits_are_the_same_on_all_ranks(two_heads, drafting):
    """There is one prefix index, rank 0's; lengths after the hit are part of what is compared."""
    requests = two_heads.requests("greedy")[-2:]
    drafting.run(requests)
    again = drafting.run(requests)
    assert again == {
        request.request_id: two_heads.reference_tokens("greedy")[request.request_id] for request in requests
    }
    assert max(output.num_prefix_hit_tokens for output in drafting.outputs) > 0


def test_a_warm_up_on_padding_changes_nothing(two_heads, drafting):
    drafting.core._runner.warm_up()
    assert drafting.run(two_heads.requests("coupled")) == two_heads.reference_tokens("coupled")


@pytest.fixture
def start(fault):
    """Start engines, sound or faulty, and end them with the test."""
    engines = []

    def begin(*arguments, **choices):
        engines.append(RankEngine(*arguments, **choices))
        return engines[-1]

    yield begin
    for engine in engines:
        engine.close()


def test_noise_before_gathering_and_ties_leave_the_ranks_agreed(one_head, start, fault):
    """One rank's arithmetic is off by a unit; two logits are equal: what is drawn from gathered logits is one thing."""
    alone = start(ngram(one_head, tp_size=1), is_faulty=True)
    ranks = start(ngram(one_head), is_faulty=True)
    fault("hidden_ulp")
    for mode in MODES:
        assert ranks.run(one_head.requests(mode)) == one_head.reference_tokens(mode)
    assert ranks.core.stats().num_accepted_tokens > 0, "no draft was ever right: the test would prove little"
    fault("tie")
    tied = ranks.run(one_head.requests("greedy")[:3])
    assert tied == alone.run(one_head.requests("greedy")[:3])
    assert tied["request-0"] != one_head.reference_tokens("greedy")["request-0"], "no tie was ever drawn"
    # The same ties, parted by one unit on one rank after gathering: now the ranks do decide differently.
    fault("tie_ulp")
    ranks.submit(one_head.requests("greedy"))
    ranks.finish(SOON_S)
    assert "ranks disagree after step" in ranks.failure.reason
    assert "token_ids is" in ranks.failure.reason
    assert "on rank 1" in ranks.failure.reason
    assert ranks.ends() == {(f"request-{index}", "error"): 1 for index in range(6)}
    assert wait_until(lambda: not any(is_alive(pid) for pid in ranks.pids))


def test_without_the_check_ranks_that_part_do_not_hang(shared_head, start, fault):
    """Shapes of collectives come from the plan alone, so ranks of different opinions still meet in every one."""
    ranks = start(with_ranks(shared_head.config, check=False, scheduler={"prefill_chunk_tokens": 3}), is_faulty=True)
    for mode in MODES:
        tokens = ranks.run(shared_head.requests(mode)[:4])
        assert tokens == {name: shared_head.reference_tokens(mode)[name] for name in tokens}
    fault("tie_ulp")
    ranks.submit(shared_head.requests("greedy")[:4])
    ranks.finish(SOON_S)
    assert ranks.failure is None
    assert ranks.ends() == {(f"request-{index}", "length"): 1 for index in range(4)}


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ("killed", "rank 1 is gone: its process {pid} was killed by SIGKILL"),
        ("stopped", "another rank is gone or silent"),
        ("raise", "rank 1: a kernel of this rank refuses"),
    ],
)
def test_a_lost_rank_is_one_error_per_request_and_leaves_no_orphan(shared_head, start, fault, event, reason):
    ranks = start(with_ranks(shared_head.eagle_config, check=False), is_faulty=True, timeout_s=3.0)
    pids = ranks.pids
    ranks.submit(shared_head.requests("greedy"))
    for _ in range(4):
        ranks.turn()
    assert ranks.tokens()
    if event == "raise":
        fault("raise")
    else:
        ranks.signal(signal.SIGKILL if event == "killed" else signal.SIGSTOP)
    lost = time.monotonic()
    ranks.finish(SOON_S)
    assert time.monotonic() - lost < SOON_S
    assert ranks.failure.kind == "EngineError"
    assert reason.format(pid=pids[0]) in ranks.failure.reason
    assert ranks.ends() == {(f"request-{index}", "error"): 1 for index in range(6)}
    assert wait_until(lambda: not any(is_alive(pid) for pid in pids))
    assert ranks.engine.poll() == [ranks.failure]


@pytest.mark.parametrize(
    ("word", "kind", "reason"),
    [
        ("version", ConfigError, r"version is \S+ on rank 0 and 0\.0\.0\+other on rank 1"),
        ("load", CheckpointError, "rank 1: this rank cannot read its part"),
    ],
)
def test_a_rank_that_cannot_join_stops_the_start(shared_head, start, fault, word, kind, reason):
    """Rank 0 is waiting in a collective of the drafter's load when the other one gives up."""
    fault(word)
    with pytest.raises(kind, match=reason):
        start(with_ranks(shared_head.eagle_config), is_faulty=True)


def test_llm_runs_two_ranks_and_reports_a_lost_one(tmp_path, monkeypatch):
    folder = make_tiny_llm(tmp_path / "tiny", vocab_size=352)
    params = [SamplingParams(temperature=0.0, max_tokens=9), SamplingParams(seed=5, max_tokens=9)]
    options = {"drafter": "ngram", "threads": 1, "max_model_len": 64, "max_num_seqs": 2}
    with LLM(str(folder), **options) as llm:
        expected = [answer.token_ids for answer in llm.generate([[5, 6, 7], [9, 8]], params)]
    monkeypatch.setenv("SLIPSTREAM_CHECK_RANKS", "1")
    with LLM(str(folder), tp=2, **options) as llm:
        assert llm._engine._core._runner._check, "the switch did not reach the engine"
        assert [answer.token_ids for answer in llm.generate([[5, 6, 7], [9, 8]], params)] == expected
        worker = llm._engine._core._runner._workers[0].process
        worker.close(0.0)
        with pytest.raises(EngineError, match="rank 1 is gone"):
            llm.generate([[5, 6, 7]], params[0])


def test_a_constraint_on_two_ranks_gives_the_text_of_one(tmp_path, monkeypatch):
    """Rank 0 alone follows the grammar; all ranks draw under the same masks, and are compared after every step."""
    folder = make_tiny_llm(tmp_path / "tiny", vocab_size=352)
    grammar = GrammarSpec.regex("(ab|cd){2,6}-[0-9]{1,9}")
    params = [
        SamplingParams(temperature=0.0, max_tokens=24, grammar=grammar),
        SamplingParams(seed=5, max_tokens=24, grammar=grammar),
        SamplingParams(seed=6, max_tokens=9),
    ]
    prompts = [[5, 6, 7], [9, 8], [4]]
    options = {"drafter": "ngram", "threads": 1, "max_model_len": 64, "max_num_seqs": 4}
    with LLM(str(folder), **options) as llm:
        expected = [(answer.token_ids, answer.text) for answer in llm.generate(prompts, params)]
    assert all(re.fullmatch("(ab|cd){2,6}-[0-9]{1,9}", text) for _, text in expected[:2])
    monkeypatch.setenv("SLIPSTREAM_CHECK_RANKS", "1")
    with LLM(str(folder), tp=2, **options) as llm:
        assert [(answer.token_ids, answer.text) for answer in llm.generate(prompts, params)] == expected
        with pytest.raises(RequestError, match="cannot be read"):
            llm.generate(prompts[0], SamplingParams(grammar=GrammarSpec.regex("(")))
        assert [(answer.token_ids, answer.text) for answer in llm.generate(prompts, params)] == expected


def row(**fields):
    values = {"row": 3, "token_ids": (1, 2), "num_accepted": 1, "num_computed_tokens": 7, "last_token": 2}
    return RowAgreement(**{**values, "draft_tokens": (4,), **fields})


@pytest.mark.parametrize(
    ("field", "value"),
    [("token_ids", (1, 3)), ("num_accepted", 0), ("num_computed_tokens", 8), ("last_token", 1), ("draft_tokens", (5,))],
)
def test_the_first_difference_is_named(field, value):
    first = row(row=1)
    assert find_difference((first, row()), (first, row()), 1) is None
    told = find_difference((first, row()), (first, row(**{field: value})), 1)
    assert told == f"row 3: {field} is {getattr(row(), field)} on rank 0 and {value} on rank 1"
    assert "rows [1, 3]" in find_difference((first, row()), (first,), 1)
