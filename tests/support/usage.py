"""A usage to put into shapes."""

from __future__ import annotations

from slipstream.server.protocol.responses import CompletionTokensDetails, PromptTokensDetails, Speculation, Usage

USAGE = Usage(
    prompt_tokens=1,
    completion_tokens=2,
    total_tokens=3,
    prompt_tokens_details=PromptTokensDetails(0),
    completion_tokens_details=CompletionTokensDetails(1, 2),
    speculation=Speculation(num_verify_steps=1, num_draft_tokens=3, num_accepted=1, num_emitted=1),
)
