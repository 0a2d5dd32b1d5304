"""`slipstream evaluate`: what a checkpoint can do, with uncertainty and provenance.

Loss by domain, word problems, needle, acceptance, losslessness and ablations; speed is `slipstream bench`. The exit
code is 1 when the drafter changes greedy answers, or with --strict when any mark is missed; 130 after Ctrl-C.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from slipstream.base.errors import ConfigError
from slipstream.cli.arguments import ENGINE_SECTIONS, with_options
from slipstream.cli.console import make_error_console, orderly_end
from slipstream.cli.settings import settle
from slipstream.config.explain import explain_rows
from slipstream.config.options import Options
from slipstream.config.schema import EngineConfig
from slipstream.demo import demo_suite_path
from slipstream.evaluation.findings import Findings
from slipstream.evaluation.plan import FULL, MEASURES, QUICK, Plan
from slipstream.evaluation.plots import draw_plots, require_plots
from slipstream.evaluation.report import PARTIAL, as_parts, build_tables, title_of
from slipstream.evaluation.run import Run
from slipstream.evaluation.subject import EngineLab
from slipstream.evaluation.suite import BUNDLED, Suite, read_suite
from slipstream.evaluation.verdict import judge
from slipstream.frontend.processor import TextParts
from slipstream.harness import provenance
from slipstream.harness.report import build_result, check_result_path, is_writable, write_result

EXIT_INTERRUPTED = 130
_NO_TERMINAL_WIDTH = 160


@with_options(ENGINE_SECTIONS)
def evaluate(
    options: Options,
    suite: Annotated[
        str, typer.Option("--suite", metavar="FILE|bundled", help="Texts and tasks: .jsonl or .jsonl.xz.")
    ] = BUNDLED,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="|".join(MEASURES), help="Measure only this; may be repeated."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small counts: about two minutes on two cores.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 when any mark is missed.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write the result to a .toml or .json file.")] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", metavar="FOLDER", help="Write pictures there (needs matplotlib).")
    ] = None,
) -> None:
    """Judge a checkpoint: loss, word problems, needle, acceptance, losslessness, ablations.

    Ctrl-C ends it early; what was found by then is shown and written, marked as partial.
    """
    plan = choose_plan(only or (), is_quick=quick)
    check_outputs(out, plots)
    config = settle(options)
    asked = read_suite(demo_suite_path() if suite == BUNDLED else Path(suite))
    console = make_error_console()
    with orderly_end(), ProgressBar(console) as bar:
        findings = make_run(options, config, asked, plan, bar).execute()
    show(findings, config)
    if out is not None:
        write_result(out, evaluation_result(config, asked, plan, findings))
        console.print(f"written to {out}", markup=False)
    if plots is not None:
        names = [path.name for path in draw_plots(findings, plots)]
        console.print(f"drawn in {plots}: {', '.join(names) or 'nothing'}", markup=False)
    raise typer.Exit(exit_code(findings, is_strict=strict))


def choose_plan(only: tuple[str, ...] | list[str], *, is_quick: bool) -> Plan:
    """Return the sizes of a run.

    Raises:
        ConfigError: a measurement that does not exist.
    """
    unknown = [name for name in only if name not in MEASURES]
    if unknown:
        raise ConfigError(f"--only {unknown[0]}: no such measurement; allowed: {', '.join(MEASURES)}")
    plan = QUICK if is_quick else FULL
    return msgspec.structs.replace(plan, measures=tuple(m for m in MEASURES if m in only)) if only else plan


def check_outputs(out: Path | None, plots: Path | None) -> None:
    """Refuse what could not be written, before an hour is spent on it.

    Raises:
        ConfigError: a name or a place that cannot be written, or plots without matplotlib.
    """
    if out is not None:
        check_result_path(out)
    if plots is not None:
        require_plots()
        if plots.exists() and not plots.is_dir():
            raise ConfigError(f"--plots {plots}: not a folder")
        if not is_writable(plots):
            raise ConfigError(f"--plots {plots}: cannot be written there; give another folder")


def make_run(options: Options, config: EngineConfig, suite: Suite, plan: Plan, bar: ProgressBar) -> Run:
    """Return the run of a checkpoint and its drafter.

    Args:
        options: as given; changed copies get the same, but for the model and the drafter.
        config: what they resolve to.
        suite: what is asked.
        plan: how much of it.
        bar: told how far the run is.
    """
    # It needs torch, which other commands do without.
    from slipstream.evaluation.variants.workshop import CopyWorkshop

    speculation = config.speculation
    has_head = speculation.eagle3 is not None and speculation.drafter_path is not None

    def settle_one(model: str | None, drafter: str | None) -> EngineConfig:
        values: dict[str, object] = {} if model is None else {"model": model}
        if drafter is not None:
            values |= {"drafter": drafter, "draft_len": 0 if drafter == "none" else speculation.draft_len}
        return settle(msgspec.structs.replace(options, **values)) if values else config

    return Run(
        EngineLab(settle_one),
        TextParts.load(config.model.path),
        suite,
        plan,
        CopyWorkshop(Path(config.model.path), Path(speculation.drafter_path or "") if has_head else None, plan.seed),
        bar,
        has_drafter=speculation.draft_len > 0,
    )


def show(findings: Findings, config: EngineConfig) -> None:
    """Print the tables to standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_NO_TERMINAL_WIDTH)
    drafter = config.speculation.drafter
    if config.speculation.draft_len:
        drafter += f" with {config.speculation.draft_len} drafts"
    if findings.is_partial:
        console.print(f"{PARTIAL} (unfinished: {', '.join(findings.unfinished)})", markup=False)
    console.print(title_of(config.model.name, drafter, findings.notes), markup=False)
    for table in build_tables(findings):
        console.print(table)


def evaluation_result(config: EngineConfig, suite: Suite, plan: Plan, findings: Findings) -> dict[str, object]:
    """Return what a run found as plain data, with what is needed to repeat it."""
    return build_result(
        "evaluation",
        provenance.collect(config.num_threads),
        config={
            f"{row.section}.{row.name}": row.value
            for row in explain_rows(config)
            if row.section != "server" and not row.name.endswith("path")
        },
        suite={"name": suite.header.name, "seed": suite.header.seed, "version": suite.header.version},
        plan=plan,
        **as_parts(findings),
    )


def exit_code(findings: Findings, *, is_strict: bool) -> int:
    """Return 0, 1 for a fault (with `is_strict` for any missed mark), or 130 for a run that was interrupted."""
    if findings.is_partial:
        return EXIT_INTERRUPTED
    return int(any(not mark.is_met and (mark.is_required or is_strict) for mark in judge(findings)))


class ProgressBar:
    """How far a run is and how long it will take: a bar on a terminal, else a line per measurement.

    Use as a context manager; it is a `run.Progress`.

    Args:
        console: where to show.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bars = Bars(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bars.add_task("loading", total=None)

    def __enter__(self) -> ProgressBar:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def begin(self, title: str) -> None:
        """Say what comes next."""
        self._bars.update(self._task, description=title)
        if not self._console.is_terminal:
            self._console.print(f"{title} ...", markup=False)

    def expect(self, total: int) -> None:
        """Say how many units of work there are in all."""
        self._bars.update(self._task, total=total)

    def advance(self, count: int) -> None:
        """Say how many more units are done."""
        self._bars.advance(self._task, count)
