"""`slipstream generate`: continue prompts or answer messages on the terminal, token by token."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from slipstream.base.errors import ConfigError
from slipstream.cli.arguments import ENGINE_SECTIONS, with_options
from slipstream.cli.console import ProgressDisplay, make_error_console
from slipstream.cli.settings import settle
from slipstream.config.options import Options
from slipstream.config.schema import EngineConfig
from slipstream.frontend.async_llm import AsyncLLM
from slipstream.frontend.chat import ChatAsk
from slipstream.harness.stats import acceptance_length
from slipstream.harness.workload import WorkItem, read_items
from slipstream.wire.sampling_params import SamplingParams

Write = Callable[[str], None]


class AnswerStats(msgspec.Struct, frozen=True, kw_only=True):
    """What one answer cost.

    Args:
        ttft_s: seconds from sending to the first token.
        total_s: seconds from sending to the end.
    """

    num_prompt_tokens: int
    num_output_tokens: int
    ttft_s: float
    total_s: float
    num_verify_steps: int
    num_draft_tokens: int
    num_accepted: int
    num_emitted: int
    finish_reason: str

    def describe(self) -> str:
        """Return one line for a reader."""
        decode_s = self.total_s - self.ttft_s
        speed = f"{(self.num_output_tokens - 1) / decode_s:.1f} tokens/s" if decode_s > 0 else "one token"
        parts = [
            f"{self.num_prompt_tokens} + {self.num_output_tokens} tokens",
            f"first after {self.ttft_s * 1e3:.0f} ms",
            f"then {speed}",
            f"ended by {self.finish_reason}",
        ]
        length = acceptance_length(self.num_verify_steps, self.num_emitted)
        if length is not None:
            parts.append(
                f"acceptance length {length:.2f} ({self.num_accepted} of {self.num_draft_tokens} drafts, "
                f"{self.num_verify_steps} verify steps)"
            )
        return ", ".join(parts)


@with_options(ENGINE_SECTIONS, is_model_flag=True)
def generate(
    options: Options,
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT", help="Prompts; without any, standard input is one.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Prompts from a file: one per line, or JSON lines if it ends in .jsonl."),
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Treat each prompt as a user's message.")] = False,
    max_tokens: Annotated[int, typer.Option("--max-tokens", metavar="N", help="Most tokens per answer.")] = 256,
    temperature: Annotated[float, typer.Option("--temperature", metavar="X", help="0 is greedy.")] = 0.0,
    top_k: Annotated[int, typer.Option("--top-k", metavar="N", help="Keep the N likeliest tokens; 0 is off.")] = 0,
    top_p: Annotated[float, typer.Option("--top-p", metavar="X", help="Keep this much probability; 1 is off.")] = 1.0,
    min_p: Annotated[
        float, typer.Option("--min-p", metavar="X", help="Drop tokens below this share of the likeliest; 0 is off.")
    ] = 0.0,
    request_seed: Annotated[
        int | None, typer.Option("--request-seed", metavar="N", help="The same seed gives the same text.")
    ] = None,
    stats: Annotated[bool, typer.Option("--stats", help="Print speed and acceptance to standard error.")] = False,
) -> None:
    """Generate text from prompts."""
    sampling = SamplingParams(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=request_seed, max_tokens=max_tokens
    )
    items = read_prompts(prompts or (), file)
    config = settle(options)
    asyncio.run(answer_all(config, items, sampling, is_chat=chat, has_stats=stats, write=write_now))


def read_prompts(arguments: Sequence[str], file: Path | None) -> tuple[WorkItem, ...]:
    """Return the prompts of the arguments and the file; with neither, standard input is one prompt.

    Raises:
        ConfigError: there is none.
    """
    items = [WorkItem(domain="argument", prompt=text) for text in arguments if text]
    if file is not None and file.suffix == ".jsonl":
        items += read_items(file)
    elif file is not None:
        items += [WorkItem(domain="file", prompt=line) for line in _read_lines(file)]
    if not arguments and file is None and not sys.stdin.isatty():
        text = sys.stdin.read()
        items += [WorkItem(domain="input", prompt=text)] if text else []
    if not items:
        raise ConfigError("no prompt: give one as an argument, in --file, or on standard input")
    return tuple(items)


def _read_lines(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--file {file}: {error}") from None
    return [line for line in lines if line.strip()]


def write_now(text: str) -> None:
    """Write to standard output without waiting for a full line."""
    sys.stdout.write(text)
    sys.stdout.flush()


async def answer_all(
    config: EngineConfig,
    items: Sequence[WorkItem],
    sampling: SamplingParams,
    *,
    is_chat: bool,
    has_stats: bool,
    write: Write,
) -> list[AnswerStats]:
    """Start an engine, answer the prompts one after the other, end the engine."""
    console = make_error_console()
    with ProgressDisplay(console) as display:
        llm = AsyncLLM.launch(config, on_progress=display)
        try:
            await llm.wait_ready()
        except BaseException:
            await llm.close()
            raise
    try:
        results: list[AnswerStats] = []
        for index, item in enumerate(items):
            if index:
                write("\n")
            results.append(await answer(llm, item, sampling, is_chat=is_chat, write=write))
            if has_stats:
                console.print(f"[{results[-1].describe()}]", markup=False)
        return results
    finally:
        await llm.close()


async def answer(
    llm: AsyncLLM, item: WorkItem, sampling: SamplingParams, *, is_chat: bool, write: Write
) -> AnswerStats:
    """Answer one prompt, writing text as it comes; a conversation is always answered as one."""
    started = time.perf_counter()
    if is_chat or item.messages:
        ask = ChatAsk(messages=item.as_chat(), template_kwargs=item.template_kwargs)
        generation = await llm.open_chat(ask, sampling)
    else:
        generation = await llm.open(item.prompt or "", sampling)
    first: float | None = None
    finish_reason = ""
    try:
        async for delta in generation:
            if delta.token_ids and first is None:
                first = time.perf_counter()
            write(delta.text)
            finish_reason = delta.finish_reason or finish_reason
    finally:
        generation.close()
    write("\n")
    ended = time.perf_counter()
    stream = generation.stream
    return AnswerStats(
        num_prompt_tokens=len(stream.request.prompt_token_ids),
        num_output_tokens=stream.num_generated_tokens,
        ttft_s=(first or ended) - started,
        total_s=ended - started,
        num_verify_steps=stream.num_verify_steps,
        num_draft_tokens=stream.num_draft_tokens,
        num_accepted=stream.num_accepted,
        num_emitted=stream.num_emitted,
        finish_reason=finish_reason,
    )
