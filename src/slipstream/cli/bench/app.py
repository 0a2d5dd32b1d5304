"""`slipstream bench`: figures of this machine, with provenance. `decode` offline, `serve` over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from slipstream.base.errors import ConfigError
from slipstream.cli.arguments import ENGINE_SECTIONS, with_options
from slipstream.cli.bench.decode import NO_DRAFTER, Lineup, bench_options, make_prompts
from slipstream.cli.bench.step import step
from slipstream.cli.client_key import API_KEY_OPTION, KEY_REMEDY, client_key
from slipstream.cli.console import make_error_console, show_error
from slipstream.cli.settings import settle
from slipstream.config.explain import explain_rows
from slipstream.config.options import Options
from slipstream.config.schema import EngineConfig
from slipstream.demo import demo_path
from slipstream.frontend.processor import TextParts
from slipstream.harness import provenance
from slipstream.harness.client import HttpClient, RequestRecord
from slipstream.harness.compare import Comparison, Score, Trial, compare, score
from slipstream.harness.load import LoadReport, LoadSettings, report_by_domain, report_load, run_load
from slipstream.harness.report import build_result, check_result_path, format_rows, write_result
from slipstream.harness.stats import Summary
from slipstream.harness.workload import choose_items, read_items

PEERS = ("transformers",)
PROMPTS = typer.Option("--prompts", help="JSON lines with 'domain' and 'messages' or 'prompt'.  [default: bundled]")
OUT = typer.Option("--out", help="Write the result to a .toml or .json file.")


def bundled_prompts() -> Path:
    """Return the file of prompts that comes with the demo model."""
    return demo_path().parent / "prompts.jsonl"


def build_app() -> typer.Typer:
    """Return the sub-commands."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure speed and acceptance.")
    app.command("decode")(decode)
    app.command("serve")(serve)
    app.command("step")(step)
    return app


@with_options(ENGINE_SECTIONS)
def decode(
    options: Options,
    peer: Annotated[str | None, typer.Option("--peer", metavar="NAME", help="Compare with: transformers.")] = None,
    also: Annotated[
        list[str] | None, typer.Option("--also", metavar="DRAFTER", help="A further drafter; may be repeated.")
    ] = None,
    prompts: Annotated[Path | None, PROMPTS] = None,
    per_domain: Annotated[int, typer.Option("--per-domain", metavar="N", min=1, help="Prompts of each domain.")] = 2,
    prompt_tokens: Annotated[
        int,
        typer.Option("--prompt-tokens", metavar="N", min=0, help="Exact length of prompts; 0: as they are."),
    ] = 128,
    max_tokens: Annotated[int, typer.Option("--max-tokens", metavar="N", min=1, help="Tokens per answer.")] = 128,
    stop_at_end: Annotated[
        bool, typer.Option("--stop-at-end", help="Let answers end where the model ends them; not with --peer.")
    ] = False,
    repetitions: Annotated[int, typer.Option("--repetitions", metavar="N", min=1, help="Timed rounds.")] = 5,
    out: Annotated[Path | None, OUT] = None,
) -> None:
    """Compare generation with and without a drafter, and with a peer, in one run.

    Batch 1, greedy, the same prompts and threads for everyone, rounds interleaved, medians reported. Prefix reuse is
    off unless asked for.
    """
    if peer is not None and (peer not in PEERS or stop_at_end):
        raise ConfigError(f"--peer {peer}: give transformers, and not together with --stop-at-end")
    if out is not None:
        check_result_path(out)
    options = bench_options(options)
    config = settle(options)
    items = read_items(prompts or bundled_prompts())
    text = TextParts.load(config.model.path)
    work = make_prompts(items, text, num_tokens=prompt_tokens or None, per_domain=per_domain)
    console = make_error_console()
    with Lineup(options, config, peer=peer, ignore_eos=not stop_at_end, also=also or ()) as lineup:
        total = len(lineup.contenders) * len(work) * repetitions
        done: list[Trial] = []

        def show(trial: Trial) -> None:
            done.append(trial)
            if len(done) % max(total // 10, 1) == 0:
                console.print(f"{len(done)} of {total} timed calls", markup=False)

        result = compare(
            lineup.contenders,
            work,
            max_tokens=max_tokens,
            repetitions=repetitions,
            is_exact=not stop_at_end,
            on_trial=show,
        )
    scores = score(result)
    typer.echo(format_scores(scores, result))
    if out is not None:
        write_result(out, decode_result(config, scores, result))
        console.print(f"written to {out}", markup=False)


def format_scores(scores: Sequence[Score], result: Comparison) -> str:
    """Return the scores as a table, then who disagreed with the baseline.

    With a peer there are two speedups: over it, and over this engine without a drafter, which is what
    drafting is worth.
    """
    plain = {entry.domain: entry.tokens_per_s for entry in scores if entry.contender == NO_DRAFTER}
    first = scores[0].contender
    speedups = [f"over {first}", f"over {NO_DRAFTER}"] if plain and first != NO_DRAFTER else [f"over {first}"]
    header = ("domain", "contender", "tokens/s", "range", *speedups, "acceptance length", "drafts accepted")
    rows = [
        (
            entry.domain,
            entry.contender,
            entry.tokens_per_s,
            f"{entry.slowest_tokens_per_s:.1f}-{entry.fastest_tokens_per_s:.1f}",
            *(entry.speedup, *(entry.tokens_per_s / plain[entry.domain] for _ in speedups[1:])),
            entry.acceptance_length,
            entry.draft_acceptance_rate,
        )
        for entry in scores
    ]
    notes = [f"{name}: other tokens than the first contender on {count} prompts" for name, count in result.differing]
    return "\n".join([format_rows(header, rows), "", *notes])


def decode_result(config: EngineConfig, scores: Sequence[Score], result: Comparison) -> dict[str, Any]:
    """Return the result of a run as plain data."""
    return build_result(
        "decode",
        provenance.collect(config.num_threads),
        config={
            f"{row.section}.{row.name}": row.value
            for row in explain_rows(config)
            if row.section != "server" and not row.name.endswith("path")
        },
        differing=dict(result.differing),
        scores=scores,
        trials=result.trials,
    )


def serve(
    url: Annotated[str, typer.Option("--url", help="Server to measure.")] = "http://127.0.0.1:8000",
    model: Annotated[str | None, typer.Option("--model", help="Model to ask for; by default the first listed.")] = None,
    api_key: Annotated[str | None, API_KEY_OPTION] = None,
    prompts: Annotated[Path | None, PROMPTS] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", metavar="N", min=1, help="Users at a time.")] = 4,
    requests: Annotated[int, typer.Option("--requests", metavar="N", min=1, help="Requests in all.")] = 32,
    max_tokens: Annotated[int, typer.Option("--max-tokens", metavar="N", min=1, help="Most tokens per answer.")] = 128,
    temperature: Annotated[float, typer.Option("--temperature", metavar="X", help="0 is greedy.")] = 0.0,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Always generate --max-tokens tokens.")] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Order of prompts and seeds of requests.")] = 0,
    out: Annotated[Path | None, OUT] = None,
) -> None:
    """Measure a running server: time to first token, time per token, acceptance.

    Each of --concurrency users sends its next request when the last one has ended.
    """
    if out is not None:
        check_result_path(out)
    items = choose_items(read_items(prompts or bundled_prompts()), requests, seed)
    key = client_key(api_key)
    console = make_error_console()

    async def run() -> tuple[LoadSettings, tuple[RequestRecord, ...], float]:
        async with HttpClient(url, api_key=key) as client:
            settings = LoadSettings(
                model=await find_model(client, url, model),
                concurrency=concurrency,
                max_tokens=max_tokens,
                temperature=temperature,
                seed=seed,
                ignore_eos=ignore_eos,
            )
            records, duration_s = await run_load(client, items, settings)
            return settings, records, duration_s

    settings, records, duration_s = asyncio.run(run())
    report = report_load(records, duration_s)
    domains = report_by_domain(records, duration_s)
    typer.echo(format_load(report, domains))
    if out is not None:
        facts = provenance.collect(0)
        write_result(out, build_result("serve", facts, settings=settings, all=report, domains=domains))
        console.print(f"written to {out}", markup=False)
    if report.num_failed:
        show_error(f"{report.num_failed} of {report.num_requests} requests failed: {report.first_error}")
        raise typer.Exit(1)


async def find_model(client: HttpClient, url: str, wanted: str | None) -> str:
    """Return the model to measure: the one asked for, if the server has it, else the first that it lists.

    Raises:
        ConfigError: nothing can be measured there; the message says why and what to do.
    """
    try:
        names = await client.list_models()
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        if status == httpx.codes.UNAUTHORIZED:
            raise ConfigError(f"--url {url}: the server asks for an API key: {KEY_REMEDY}") from None
        if status == httpx.codes.NOT_FOUND and wanted is not None:
            # A server that lists nothing may still answer.
            return wanted
        raise ConfigError(f"--url {url}: the server answers {status} when asked for its models") from None
    except (httpx.HTTPError, KeyError, IndexError, TypeError, ValueError) as error:
        raise ConfigError(f"--url {url}: no model is listed there ({error}); is the server running?") from None
    if wanted is not None and wanted not in names:
        raise ConfigError(f"--model {wanted} is not served at {url}: give one of {', '.join(names)}")
    return wanted or names[0]


def format_load(report: LoadReport, domains: dict[str, LoadReport]) -> str:
    """Return what a run measured as two tables."""
    lines = [
        f"{report.num_requests} requests in {report.duration_s:.1f} s, {report.num_failed} failed, "
        f"{report.num_prompt_tokens} prompt and {report.num_output_tokens} output tokens, "
        f"{report.output_tokens_per_s:.1f} output tokens/s",
        "",
    ]
    quantities = {
        "time to first token": report.ttft_ms,
        "time per output token": report.time_per_output_token_ms,
        "between pieces": report.gap_ms,
        "whole request": report.latency_ms,
    }
    rows = [(name, *_percentiles(summary)) for name, summary in quantities.items()]
    lines += [format_rows(("milliseconds", "mean", "p50", "p90", "p99", "max"), rows), ""]
    header = ("domain", "requests", "p50 ms/token", "acceptance length", "drafts accepted")
    entries = [
        (
            domain,
            part.num_requests,
            part.time_per_output_token_ms.p50 if part.time_per_output_token_ms else None,
            part.acceptance_length,
            part.draft_acceptance_rate,
        )
        for domain, part in (*domains.items(), ("all", report))
    ]
    return "\n".join([*lines, format_rows(header, entries)])


def _percentiles(summary: Summary | None) -> tuple[float | None, ...]:
    if summary is None:
        return (None,) * 5
    return (summary.mean, summary.p50, summary.p90, summary.p99, summary.max)
