"""Offline comparison of generators on one checkpoint: the peer, this engine without a drafter, and with one.

Everything runs in one process with the same number of threads, one request at a time, in float32 unless asked
otherwise. Not here: parsing arguments (bench) and timing (harness.compare).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from slipstream.base.errors import ConfigError
from slipstream.cli.arguments import given_options
from slipstream.cli.bench.peer import TransformersContender
from slipstream.config.options import Options
from slipstream.config.schema import EngineConfig
from slipstream.frontend.llm import LLM
from slipstream.frontend.processor import TextParts
from slipstream.harness.compare import Contender, Continuation, Prompt, cut_prompt
from slipstream.harness.workload import WorkItem, group_by_domain
from slipstream.wire.sampling_params import SamplingParams

NO_DRAFTER = "no drafter"
# The same prompt is generated from again and again: a prefix hit would leave out what a peer must compute.
BENCH_DEFAULTS = {"max_num_seqs": 1, "prefix_cache": False}


class SlipstreamContender:
    """This engine, in this process.

    Args:
        name: shown in the result.
        llm: the engine; closed by its owner.
        ignore_eos: go on behind the model's end token.
    """

    def __init__(self, name: str, llm: LLM, *, ignore_eos: bool) -> None:
        self.name = name
        self._llm = llm
        self._ignore_eos = ignore_eos

    def generate(self, prompt_token_ids: Sequence[int], max_tokens: int) -> Continuation:
        """Continue a prompt greedily."""
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=self._ignore_eos)
        made = self._llm.generate(list(prompt_token_ids), params)[0]
        return Continuation(
            token_ids=made.token_ids,
            num_verify_steps=made.num_verify_steps,
            num_draft_tokens=made.num_draft_tokens,
            num_accepted=made.num_accepted,
            num_emitted=made.num_emitted,
        )


class Lineup:
    """The contenders of one run; close it, or use it as a context manager.

    Args:
        options: of the engine with the drafter; `max_num_seqs` 1 and no prefix reuse unless given.
        config: what `options` resolve to.
        peer: `transformers`, or None.
        ignore_eos: always generate the full number of tokens.
        also: further drafters, with their default lengths.
    """

    def __init__(
        self,
        options: Options,
        config: EngineConfig,
        *,
        peer: str | None,
        ignore_eos: bool,
        also: Sequence[str] = (),
    ) -> None:
        given = given_options(options)
        self._open: list[LLM] = []
        self.contenders: list[Contender] = []
        if peer is not None:
            self.contenders.append(TransformersContender(Path(config.model.path), config.num_threads))
        self._add({**given, "drafter": "none", "draft_len": 0}, ignore_eos)
        if config.speculation.drafter != "none":
            self._add(given, ignore_eos)
        for drafter in also:
            self._add({**given, "drafter": drafter, "draft_len": None}, ignore_eos)

    def __enter__(self) -> Lineup:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the engines."""
        for llm in self._open:
            llm.close()

    def _add(self, given: dict[str, object], ignore_eos: bool) -> None:
        values: dict[str, object] = {key: value for key, value in given.items() if value is not None}
        llm = LLM(**values)  # type: ignore[arg-type]
        self._open.append(llm)
        name = f"{llm.facts.drafter}, {llm.facts.draft_len} drafts" if llm.facts.draft_len else NO_DRAFTER
        self.contenders.append(SlipstreamContender(name, llm, ignore_eos=ignore_eos))


def bench_options(options: Options) -> Options:
    """Return the options with what a fair offline comparison needs, unless it was given."""
    missing = {name: value for name, value in BENCH_DEFAULTS.items() if getattr(options, name) is None}
    return msgspec.structs.replace(options, **missing)


def make_prompts(
    items: Sequence[WorkItem], text: TextParts, *, num_tokens: int | None, per_domain: int
) -> list[Prompt]:
    """Return the prompts of a run as token ids.

    Args:
        items: prompts by domain.
        text: tokenizer and template of the checkpoint.
        num_tokens: exact length: short prompts are preceded by the domain's other prompts, long ones lose their
            beginning. None leaves each as it is.
        per_domain: most prompts of a domain.

    Raises:
        ConfigError: a domain has too little text.
    """
    prompts: list[Prompt] = []
    for domain, members in group_by_domain(items).items():
        token_ids = [_tokenize(item, text) for item in members]
        for index in range(min(per_domain, len(members))):
            before = [token for i in range(len(members) - 1) for token in token_ids[(index + 1 + i) % len(members)]]
            try:
                cut = cut_prompt(before, token_ids[index], num_tokens)
            except ValueError as error:
                raise ConfigError(f"domain {domain}: {error}; give fewer --prompt-tokens or more prompts") from None
            prompts.append(Prompt(domain=domain, token_ids=cut))
    return prompts


def _tokenize(item: WorkItem, text: TextParts) -> tuple[int, ...]:
    if item.prompt is not None or text.template is None:
        content = item.prompt if item.prompt is not None else "\n".join(content for _, content in item.messages)
        return tuple(text.tokenizer.encode(content, add_special_tokens=True))
    token_ids = text.template.encode(item.as_chat(), add_generation_prompt=True, template_kwargs=item.template_kwargs)
    return tuple(token_ids)
