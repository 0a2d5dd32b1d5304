"""A request carries everything resolved and survives the wire."""

import msgspec

from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams


def test_a_request_survives_the_wire() -> None:
    request = Request(
        request_id="r",
        prompt_token_ids=(1, 2),
        sampling=SamplingParams(temperature=0, grammar=GrammarSpec.json_object()),
        seed=-(2**63),
        max_seq_len=8,
        stop_token_ids=(3, 4),
        eos_token_ids=(3,),
        arrival_s=1.5,
        grammar_starts="after_reasoning",
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=Request) == request
