"""The life of a worker, alone in this process: it says what it is, obeys, reports, and ends."""

from __future__ import annotations

import signal
import threading

import msgspec
import pytest
import zmq

from slipstream.base.errors import CapacityError
from slipstream.config.hardware import Hardware
from slipstream.config.options import Options
from slipstream.config.resolve import resolve
from slipstream.engine import worker
from slipstream.engine.rank_setup import WorkerOrder, identity_of
from slipstream.runner.build import build_runner
from slipstream.wire.codec import decode_to_leader, encode
from slipstream.wire.ranks import Hello, Leave, Loaded, Meet, RankFailed, RunStep, StepAgreement, WarmUp
from slipstream.wire.sampling_params import SamplingParams
from slipstream.wire.step import PageEdit, PrefillChunk, RowStart, StepPlan
from support.tiny_checkpoints import make_tiny_checkpoint

MACHINE = Hardware(num_cpus=1, total_memory_bytes=2**34, available_memory_bytes=2**33)
MEET = Meet(init_method="file:///nowhere")
START = RowStart(
    row=0, token_ids=(5, 6, 7), num_computed_tokens=0, max_seq_len=9, sampling=SamplingParams(temperature=0.0), seed=1
)
PLAN = StepPlan(
    step_id=1,
    starts=(START,),
    page_edits=tuple(PageEdit(group=group, row=0, first=0, pages=(1, 2)) for group in ("target", "index")),
    chunks=(PrefillChunk(row=0, start=0, end=3, is_last=True),),
)


ADDRESS = "inproc://leader"


def lead(messages, words, is_over):
    """Be rank 0: answer hello with all messages at once, and note every word until the worker is over."""
    with zmq.Context.instance().socket(zmq.PAIR) as socket:
        socket.bind(ADDRESS)
        socket.poll(20_000)
        for message in messages:
            socket.send(encode(message))
        while socket.poll(50) or not is_over.is_set():
            if socket.poll(0):
                words.append(decode_to_leader(socket.recv()))


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = make_tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "model")
    options = Options(model=str(folder), drafter="none", threads=1, max_model_len=64, max_num_seqs=2)
    return resolve(options, MACHINE)


@pytest.fixture
def live(config, tmp_path):
    """Run a worker and return its exit code and words. In a group of one it waits for nobody."""
    before = signal.getsignal(signal.SIGINT)

    def run(messages, *, check_ranks=False, build=build_runner):
        parallel = msgspec.structs.replace(config.parallel, check_ranks=check_ranks)
        order = WorkerOrder(config=msgspec.structs.replace(config, parallel=parallel), rank=0, timeout_s=1.0)
        file = tmp_path / "order.json"
        file.write_bytes(msgspec.json.encode(order))
        words = []
        # The worker takes signals, so it has the main thread; rank 0 has another one, and says nothing too late.
        is_over = threading.Event()
        leader = threading.Thread(target=lead, args=(messages, words, is_over))
        leader.start()
        try:
            code = worker.main(["--config", str(file), "--address", ADDRESS], build=build)
        finally:
            is_over.set()
            leader.join()
        return code, words

    yield run
    signal.signal(signal.SIGINT, before)


def test_it_says_what_it_is_then_loads_then_obeys_in_silence(config, live):
    code, words = live([MEET, WarmUp(), RunStep(plan=PLAN), Leave()])
    assert code == 0
    assert words == [Hello(rank=0, identity=identity_of(config)), Loaded(rank=0)]


def test_with_the_check_it_reports_every_step(live):
    code, words = live([MEET, RunStep(plan=PLAN), Leave()], check_ranks=True)
    assert code == 0
    agreement = words[-1]
    assert isinstance(agreement, StepAgreement)
    assert (agreement.step_id, len(agreement.rows)) == (1, 1)
    row = agreement.rows[0]
    assert (row.row, row.num_computed_tokens, len(row.token_ids)) == (0, 3, 1)
    assert row.last_token == row.token_ids[0]


def test_it_may_be_sent_away_before_it_loads(live):
    code, words = live([Leave()])
    assert code == 0
    assert [type(word) for word in words] == [Hello]


def refuse(*_):
    raise CapacityError("no room for 9 bytes")


def stumble(*_):
    raise ZeroDivisionError("by nothing")


@pytest.mark.parametrize(
    ("messages", "build", "kind", "reason"),
    [
        ([MEET], refuse, "CapacityError", "no room for 9 bytes"),
        ([MEET], stumble, "EngineError", "ZeroDivisionError: by nothing"),
        ([MEET, MEET], build_runner, "EngineError", "rank 0 was told Meet while it was running"),
    ],
)
def test_last_words_name_the_fault(live, capsys, messages, build, kind, reason):
    code, words = live(messages, build=build)
    assert code == 1
    assert words[-1] == RankFailed(rank=0, kind=kind, reason=reason)
