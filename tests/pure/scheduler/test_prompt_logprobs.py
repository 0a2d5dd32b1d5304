"""Log-probabilities of a prompt: said by chunks, returned once and whole, also when the prompt is computed again."""

from __future__ import annotations

import msgspec

from slipstream.wire.messages import RequestOutput
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams
from slipstream.wire.step import PromptRun, RowStart, StepPlan, StepResult, TokenRun
from support.fake_runner import EngineLoop, make_request


def make(prompt: list[int]) -> Request:
    request = make_request("a", prompt, max_tokens=4)
    sampling = msgspec.structs.replace(request.sampling, prompt_logprobs=1)
    return msgspec.structs.replace(request, sampling=sampling, verification="rejection", bad_token_ids=((3,),))


class Loop:
    """A scheduler whose runner draws token 7 and says of prompt position p: log-probability -p, alternative p."""

    def __init__(self, chunk_tokens: int = 4) -> None:
        self.scheduler = EngineLoop(draft_len=2, prefill_chunk_tokens=chunk_tokens).scheduler
        self.starts: dict[int, RowStart] = {}

    def submit(self, request: Request) -> None:
        self.scheduler.submit(request)

    def plan(self) -> StepPlan:
        plan = self.scheduler.plan()
        assert plan is not None
        self.starts |= {start.row: start for start in plan.starts}
        return plan

    def turn(self) -> list[RequestOutput]:
        return self.commit(self.plan())

    def commit(self, plan: StepPlan) -> list[RequestOutput]:
        described: list[PromptRun] = []
        for chunk in plan.chunks:
            start = self.starts[chunk.row]
            places = range(chunk.start + 1, min(chunk.end, start.num_prompt_tokens - 1) + 1)
            if start.num_prompt_logprobs is not None and places:
                logprobs = tuple(-float(place) for place in places)
                tops = tuple(((place, -float(place)),) for place in places)
                described.append(PromptRun(row=chunk.row, first=places[0], logprobs=logprobs, top_logprobs=tops))
        rows = (*plan.decode_rows, *(chunk.row for chunk in plan.chunks if chunk.is_last))
        runs = tuple(TokenRun(row=row, token_ids=(7,), num_draft_tokens=0, num_accepted=0) for row in rows)
        return self.scheduler.commit(StepResult(step_id=plan.step_id, runs=runs, prompt_runs=tuple(described)))


def test_a_start_carries_what_the_device_must_know():
    loop, request = Loop(), make(list(range(5)))
    loop.submit(msgspec.structs.replace(request, stop_token_ids=(4, 9)))
    (start,) = loop.plan().starts
    assert start.num_prompt_tokens == 5
    assert start.stop_token_ids == (4, 9)
    assert start.bad_token_ids == ((3,),)
    assert start.verification == "rejection"
    assert start.num_prompt_logprobs == 1


def test_the_prompt_is_described_once_with_the_first_output():
    loop, request = Loop(), make(list(range(10)))
    loop.submit(request)
    outputs: list[RequestOutput] = []
    while not outputs:
        outputs = loop.turn()
    assert outputs[0].prompt_logprobs == tuple(-float(place) for place in range(1, 10))
    assert outputs[0].prompt_top_logprobs == tuple(((place, -float(place)),) for place in range(1, 10))
    (later,) = loop.turn()
    assert (later.prompt_logprobs, later.prompt_top_logprobs) == ((), ())


def test_a_described_prompt_is_computed_whole_though_its_pages_are_known():
    loop, request = Loop(64), make(list(range(10)))
    for _ in range(2):
        loop.submit(request)
        plan = loop.plan()
        assert plan.starts[0].num_computed_tokens == 0
        loop.commit(plan)
        loop.scheduler.abort("a")
    plain = msgspec.structs.replace(request, sampling=SamplingParams(max_tokens=4))
    loop.submit(plain)
    assert loop.plan().starts[0].num_computed_tokens > 0, "others find its pages"


def test_what_was_said_of_a_prompt_is_forgotten_when_it_starts_again():
    loop, request = Loop(), make(list(range(10)))
    loop.submit(request)
    assert loop.turn() == []
    state = loop.scheduler._state
    state.preempt(state.by_age()[0])
    outputs: list[RequestOutput] = []
    while not outputs:
        outputs = loop.turn()
    assert outputs[0].prompt_logprobs == tuple(-float(place) for place in range(1, 10))


def test_after_the_first_output_a_preempted_request_describes_nothing_and_counts_its_answer_apart():
    loop, request = Loop(64), make(list(range(6)))
    loop.submit(request)
    loop.turn()
    state = loop.scheduler._state
    state.preempt(state.by_age()[0])
    (start,) = loop.plan().starts
    assert start.num_prompt_logprobs is None
    assert (start.num_prompt_tokens, len(start.token_ids)) == (6, 7)
