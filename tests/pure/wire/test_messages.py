"""Messages between processes are told apart by their tag."""

import msgspec
import pytest

from slipstream.wire.messages import (
    Abort,
    EngineStats,
    Failed,
    Outputs,
    Progress,
    RequestOutput,
    Shutdown,
    Stopped,
    Submit,
    ToEngine,
    ToFrontend,
)
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams

REQUEST = Request(request_id="r", prompt_token_ids=(1, 2), sampling=SamplingParams(), seed=4, max_seq_len=8)


@pytest.mark.parametrize("message", [Submit(REQUEST), Abort("r"), Shutdown(drain=True)])
def test_messages_to_the_engine_come_back_equal(message: ToEngine) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=ToEngine) == message


@pytest.mark.parametrize(
    "message",
    [
        Progress(stage="weights", done=1, total=2),
        Outputs(outputs=(RequestOutput(request_id="r", token_ids=(3,), finish_reason="stop"),), stats=EngineStats()),
        Outputs(
            outputs=(
                RequestOutput(request_id="r", is_accepted=True),
                RequestOutput(request_id="s", finish_reason="error", error="x", error_kind="RequestError"),
                RequestOutput(request_id="t", finish_reason="error", error="x", error_code="invalid_grammar"),
            ),
            stats=EngineStats(),
        ),
        Failed(kind="EngineError", reason="x"),
        Stopped(),
    ],
)
def test_messages_to_the_front_end_come_back_equal(message: ToFrontend) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=ToFrontend) == message


def test_an_unknown_tag_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode({"type": "reboot"}), type=ToEngine)
