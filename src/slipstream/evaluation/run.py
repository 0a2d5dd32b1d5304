"""One evaluation from its first engine to its last: what is measured on which engine, in which order.

Cheap and telling measurements come first, since a run may be cut off at any moment; what it found until then is kept.
Not here: the measurements (measures), changed copies (variants), judging and showing (verdict, report, plots).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from slipstream.base.errors import ConfigError, SlipstreamError
from slipstream.evaluation.changes import Change, Workshop
from slipstream.evaluation.findings import TRAINED, Findings
from slipstream.evaluation.measures.ablations import compare_bits
from slipstream.evaluation.measures.bits import (
    Ngrams,
    ScoredText,
    choose_texts,
    measure_bits,
    score_bits,
    train_ngrams,
)
from slipstream.evaluation.measures.needle import NeedleSet, build_needles, measure_needles
from slipstream.evaluation.measures.problems import ProblemSet, choose_problems, measure_problems
from slipstream.evaluation.measures.speculation import (
    DraftPrompt,
    answer_all,
    choose_prompts,
    compare_answers,
    tally_acceptance,
)
from slipstream.evaluation.measures.work import answers_cost
from slipstream.evaluation.plan import Plan
from slipstream.evaluation.subject import Answer, Lab, Subject
from slipstream.evaluation.suite import Suite
from slipstream.evaluation.words import is_native
from slipstream.frontend.processor import TextParts
from slipstream.wire.messages import EngineFacts

NO_DRAFTER = "none"


class Progress(Protocol):
    """Told how far a run is."""

    def begin(self, title: str) -> None:
        """Say what comes next."""
        ...

    def expect(self, total: int) -> None:
        """Say how many units of work there are in all."""
        ...

    def advance(self, count: int) -> None:
        """Say how many more units are done."""
        ...


class Run:
    """One evaluation of one checkpoint.

    Args:
        lab: opens engines.
        text: tokenizer and template of the checkpoint.
        suite: what is asked.
        plan: how much of it.
        workshop: makes changed copies.
        progress: told how far the run is.
        has_drafter: the run's own engine drafts.
    """

    def __init__(
        self,
        lab: Lab,
        text: TextParts,
        suite: Suite,
        plan: Plan,
        workshop: Workshop,
        progress: Progress,
        *,
        has_drafter: bool,
    ) -> None:
        self._lab = lab
        self._text = text
        self._suite = suite
        self._plan = plan
        self._workshop = workshop
        self._progress = progress
        self._has_drafter = has_drafter
        self._is_native = is_native(text, suite.header)
        self._texts: tuple[ScoredText, ...] = ()
        self._ablation_texts: tuple[ScoredText, ...] = ()
        self._problems: tuple[ProblemSet, ...] = ()
        self._needles: tuple[NeedleSet, ...] = ()
        self._prompts: tuple[DraftPrompt, ...] = ()
        self._plain: list[Answer] = []
        self.findings = Findings(unfinished=list(plan.measures))

    def execute(self) -> Findings:
        """Measure everything; Ctrl-C ends it early and marks the findings as partial.

        Raises:
            ConfigError: the suite holds nothing that this model can be asked.
            SlipstreamError: the checkpoint itself cannot be run.
        """
        try:
            self._measure_plain()
            if self._prompts:
                self._measure_drafts()
            self._done("speculation")
            if self._ablation_texts or self._needles:
                self._measure_changes()
            self._done("needle", "ablations")
        except KeyboardInterrupt:
            self.findings.is_partial = True
        return self.findings

    def _wants(self, measure: str) -> bool:
        return measure in self._plan.measures

    def _done(self, *measures: str) -> None:
        self.findings.unfinished = [name for name in self.findings.unfinished if name not in measures]

    def _note(self, text: str) -> None:
        self.findings.notes.append(text)

    def _measure_plain(self) -> None:
        """Measure what needs the checkpoint as it is, without a drafter."""
        findings, advance = self.findings, self._progress.advance
        self._progress.begin("loading")
        with self._lab.open(drafter=NO_DRAFTER) as subject:
            self._prepare(subject.facts)
            if self._wants("bits"):
                self._progress.begin("n-gram models")
                ngrams = self._train_ngrams()
                self._progress.begin("bits per byte")
                for row in measure_bits(subject, self._texts, ngrams, self._text.tokenizer, advance):
                    findings.add(row)
                self._done("bits")
            if self._problems:
                self._progress.begin("word problems")
                for cell in measure_problems(subject, self._problems, self._plan.max_problem_tokens, advance):
                    findings.add(cell)
            self._done("problems")
            if self._needles:
                self._progress.begin("needle: learned")
                for found in measure_needles(subject, self._needles, "learned", self._plan.max_needle_tokens, advance):
                    findings.add(found)
            if self._prompts:
                self._progress.begin("answers without a drafter")
                self._plain = answer_all(subject, self._prompts, self._plan.max_tokens, 0.0, advance)

    def _train_ngrams(self) -> Ngrams | None:
        ngrams = train_ngrams(self._text, self._suite, is_native=self._is_native, has_bytes=self._plan.has_byte_ngrams)
        if ngrams is None:
            self._note("no n-gram model: the suite has no training sample for this model")
        return ngrams

    def _measure_drafts(self) -> None:
        """Compare answers with the drafter's, and count what was accepted."""
        plan, advance = self._plan, self._progress.advance
        with self._lab.open() as subject:
            draft_len = subject.facts.draft_len
            self._progress.begin("answers with the drafter")
            drafted = answer_all(subject, self._prompts, plan.max_tokens, 0.0, advance)
            for row in tally_acceptance(TRAINED, 0.0, self._prompts, drafted, draft_len):
                self.findings.add(row)
            self.findings.add(
                compare_answers(self._prompts, self._plain, drafted, self._open_reference, self._text.tokenizer.decode)
            )
            self._progress.begin("answers with the drafter, temperature 1")
            chosen = self._prompts[: plan.num_sampled]
            sampled = answer_all(subject, chosen, plan.max_tokens, 1.0, advance)
            for row in tally_acceptance(TRAINED, 1.0, chosen, sampled, draft_len):
                self.findings.add(row)
        if not self._workshop.controls:
            self._note("no control drafters: the drafter is no head with weights")
        for control in self._workshop.controls:
            self._progress.begin(f"control drafter: {control}")
            try:
                self._measure_control(control, draft_len)
            except SlipstreamError as error:
                self._note(f"control drafter {control}: not measured ({error})")

    def _measure_control(self, control: str, draft_len: int) -> None:
        plan, chosen = self._plan, self._prompts[: self._plan.num_control]
        with self._workshop.control(control) as folder, self._lab.open(drafter=str(folder)) as subject:
            answers = answer_all(subject, chosen, plan.max_tokens, 0.0, self._progress.advance)
            for row in tally_acceptance(control, 0.0, chosen, answers, draft_len):
                self.findings.add(row)

    def _open_reference(self) -> AbstractContextManager[Subject]:
        return self._lab.open(drafter=NO_DRAFTER)

    def _measure_changes(self) -> None:
        """Score the same texts, and look for the same facts, on changed copies."""
        self._progress.begin("ablations: nothing switched off")
        before: list[list[float]] = []
        if self._ablation_texts:
            with self._lab.open(drafter=NO_DRAFTER) as subject:
                before = score_bits(subject, self._ablation_texts, self._progress.advance)
        for change in self._changes():
            self._progress.begin(f"without {change.feature}")
            try:
                self._measure_change(change, before)
            except SlipstreamError as error:
                self._note(f"{change.feature}: not measured ({error})")

    def _measure_change(self, change: Change, before: list[list[float]]) -> None:
        texts, advance = self._ablation_texts, self._progress.advance
        with self._workshop.variant(change.feature) as folder:
            if folder is None:
                self._note(f"{change.feature}: this checkpoint does not have it")
                return
            with self._lab.open(model=str(folder), drafter=NO_DRAFTER) as subject:
                if texts:
                    after = score_bits(subject, texts, advance)
                    self.findings.add(compare_bits(change.feature, change.means, texts, before, after))
                if change.selection is not None and self._needles:
                    for row in measure_needles(
                        subject, self._needles, change.selection, self._plan.max_needle_tokens, advance
                    ):
                        self.findings.add(row)

    def _changes(self) -> tuple[Change, ...]:
        """Return the changes of this run: of selections only, if only the needle is asked for."""
        changes = self._workshop.changes
        if self._workshop.num_bytes > self._plan.max_copy_bytes:
            changes = tuple(change for change in changes if not change.needs_copy)
        return changes if self._ablation_texts else tuple(c for c in changes if c.selection is not None)

    def _prepare(self, facts: EngineFacts) -> None:
        """Choose what is asked, and say how much work it is."""
        plan, text, suite = self._plan, self._text, self._suite
        if not self._is_native:
            self._note(
                "the model's chat template is not the suite's: conversations, word problems and the needle are left out"
            )
        max_text_tokens = min(plan.max_text_tokens, facts.max_model_len - 1)
        if self._wants("bits"):
            self._texts = self._choose_texts(plan.num_texts, max_text_tokens)
        if self._wants("ablations"):
            self._ablation_texts = self._choose_texts(plan.num_ablation_texts, max_text_tokens)
        if self._wants("problems") and self._is_native:
            self._problems = choose_problems(text, suite, plan.num_problems)
        if self._wants("needle") and self._is_native:
            self._needles = build_needles(text, suite, plan, facts.max_model_len)
            lengths = {cell.num_tokens for cell in self._needles}
            missing = [str(length) for length in plan.needle_lengths if length not in lengths]
            if missing:
                self._note(f"needle: no texts of {', '.join(missing)} tokens (context of {facts.max_model_len})")
        self._prepare_prompts(facts)
        total = self._count_work()
        if not total:
            raise ConfigError(
                f"suite {suite.header.name}: it holds nothing that this model can be asked; give another --suite, or "
                "leave --only out"
            )
        self._progress.expect(total)

    def _choose_texts(self, per_domain: int, max_tokens: int) -> tuple[ScoredText, ...]:
        return choose_texts(
            self._text, self._suite, is_native=self._is_native, per_domain=per_domain, max_tokens=max_tokens
        )

    def _prepare_prompts(self, facts: EngineFacts) -> None:
        if not self._wants("speculation"):
            return
        if not self._has_drafter:
            self._note("no drafter: acceptance and losslessness are left out")
            return
        self._prompts = choose_prompts(
            self._text,
            self._suite,
            is_native=self._is_native,
            count=self._plan.num_prompts,
            max_tokens=facts.max_model_len - self._plan.max_tokens,
        )
        if len(self._prompts) < self._plan.num_prompts:
            self._note(
                f"the suite has {len(self._prompts)} prompts for this model, {self._plan.num_prompts} were asked"
            )

    def _count_work(self) -> int:
        plan = self._plan
        if self._workshop.num_bytes > plan.max_copy_bytes and (self._ablation_texts or self._needles):
            self._note(
                f"the checkpoint has {self._workshop.num_bytes} bytes; ablations that rewrite weights are left out "
                f"above {plan.max_copy_bytes}"
            )
        changes = self._changes()
        num_selections = 1 + sum(change.selection is not None for change in changes)
        texts = sum(len(text.token_ids) for text in self._texts)
        texts += (1 + len(changes)) * sum(len(text.token_ids) for text in self._ablation_texts)
        answers = sum(answers_cost(cell.prompts, plan.max_problem_tokens) for cell in self._problems)
        answers += num_selections * sum(answers_cost(cell.prompts, plan.max_needle_tokens) for cell in self._needles)
        asked = [prompt.token_ids for prompt in self._prompts]
        parts = [asked, asked, asked[: plan.num_sampled]]
        parts += [asked[: plan.num_control]] * len(self._workshop.controls)
        return texts + answers + sum(answers_cost(part, plan.max_tokens) for part in parts)
