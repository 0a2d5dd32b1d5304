"""Evaluation without a model: subjects that answer by rule, a lab that opens them, a workshop that copies nothing."""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from slipstream.evaluation.changes import Change
from slipstream.evaluation.estimates import Ratio, estimate_share
from slipstream.evaluation.findings import (
    AblationResult,
    Acceptance,
    DomainBits,
    Findings,
    Lossless,
    NeedleCell,
    ProblemCell,
)
from slipstream.evaluation.plan import Plan
from slipstream.evaluation.subject import Answer, VerifyStep
from slipstream.evaluation.suite import Dialogue, Fact, Header, Needle, Problem, Prompt, Suite, Text
from slipstream.frontend.processor import TextParts
from slipstream.text.messages import parse_messages
from support.fake_engine import fake_facts
from support.tiny_text import tiny_folder

TEXT = TextParts.load(tiny_folder())
PROBE = ({"role": "user", "content": "hello"}, {"role": "assistant", "content": "the fox"})
FILLERS = ("the quick brown fox jumps", "the lazy dog sleeps", "the fox reads a book", "hello world")
PLAN = Plan(
    name="tiny",
    num_texts=2,
    max_text_tokens=64,
    has_byte_ngrams=True,
    num_problems=2,
    needle_lengths=(200, 4096),
    needle_depths=(0.0, 1.0),
    num_needles=2,
    num_prompts=4,
    num_sampled=2,
    num_control=2,
    max_tokens=8,
    num_ablation_texts=1,
)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def header(probe_text: str | None = None) -> Header:
    """Return a header whose probe the tiny template writes, unless another text is given."""
    assert TEXT.template is not None
    written = TEXT.template.render(parse_messages(list(PROBE)), add_generation_prompt=False)
    text = written if probe_text is None else probe_text
    return Header(name="tiny", version=1, seed=7, probe=PROBE, probe_text=text)


def needle(expected: str = "fox") -> Needle:
    fact = Fact(text=f"the secret word is {expected}", question="what is the word", expected=expected)
    return Needle(opening="read", fact=fact, others=(Fact(text="the dog", question="who", expected="dog"),))


def tiny_suite(**changes: Any) -> Suite:
    """Return a suite with a little of everything."""
    talk = (user("the dog"), {"role": "assistant", "content": "the dog sleeps"})
    fields: dict[str, Any] = {
        "header": header(),
        "texts": (
            Text(split="train", domain="documents", text="the quick brown fox jumps over the lazy dog"),
            Text(split="test", domain="documents", text="the lazy dog jumps over the quick brown fox"),
            Text(split="test", domain="documents", text="hello world"),
        ),
        "dialogues": (
            Dialogue(split="train", domain="chat", messages=talk),
            Dialogue(split="test", domain="chat", messages=talk),
        ),
        "problems": tuple(
            Problem(
                num_steps=steps,
                templates=forms,
                messages=(user(f"count {steps}"),),
                thinking_mode="disabled",
                expected="72",
            )
            for forms in ("held-out", "seen")
            for steps in (2, 1)
        ),
        "needles": (needle("fox"), needle("book")),
        "fillers": FILLERS,
        "prompts": (
            Prompt(domain="chat", messages=(user("one"),)),
            Prompt(domain="chat", messages=(user("two"),)),
            Prompt(domain="json", messages=(user("three"),), thinking_mode="disabled"),
            Prompt(domain="documents", text="the quick"),
        ),
    }
    return Suite(**(fields | changes))


class FakeSubject:
    """Answers by rule and counts what it was asked.

    Args:
        reply: prompt token ids to the text of the answer.
        logprob: log-probability of every token.
        steps: verify steps of every answer.
        margin: of every first token.
        best_ids: the two best first tokens.
        stop_after: answers and scores after which Ctrl-C comes.
        facts: changed facts.
    """

    def __init__(
        self,
        reply: Callable[[Sequence[int]], str] = lambda ids: "8 * 9 = 72",
        *,
        logprob: float = -1.0,
        steps: Sequence[VerifyStep] = (),
        margin: float | None = 1.0,
        best_ids: tuple[int, ...] = (1, 2),
        stop_after: int | None = None,
        **facts: Any,
    ) -> None:
        self.facts = fake_facts(**facts)
        self._reply = reply
        self._logprob = logprob
        self._steps = tuple(steps)
        self._margin, self._best_ids = margin, best_ids
        self._left = stop_after
        self.asked: list[tuple[int, ...]] = []

    def score(self, prompts: Sequence[Sequence[int]]) -> Iterator[tuple[float, ...]]:
        for prompt in prompts:
            self._count(prompt)
            yield (self._logprob,) * (len(prompt) - 1)

    def answer(
        self, prompts: Sequence[Sequence[int]], *, max_tokens: int, temperature: float = 0.0, has_margin: bool = False
    ) -> Iterator[Answer]:
        del temperature
        for prompt in prompts:
            self._count(prompt)
            text = self._reply(prompt)
            yield Answer(
                token_ids=tuple(TEXT.tokenizer.encode_plain(text))[:max_tokens],
                text=text,
                steps=self._steps,
                margin=self._margin if has_margin else None,
                best_ids=self._best_ids if has_margin else (),
            )

    def _count(self, prompt: Sequence[int]) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise KeyboardInterrupt
        self.asked.append(tuple(prompt))


class FakeLab:
    """Opens subjects by what is asked for: `drafted`, `plain`, or the last part of a folder's name."""

    def __init__(self, **subjects: FakeSubject) -> None:
        self.subjects = subjects
        self.opened: list[str] = []

    @contextmanager
    def open(self, *, model: str | None = None, drafter: str | None = None) -> Iterator[FakeSubject]:
        name = "drafted"
        if model is not None:
            name = Path(model).name
        elif drafter is not None:
            name = "plain" if drafter == "none" else Path(drafter).name
        self.opened.append(name)
        yield self.subjects.get(name, self.subjects["plain"])


CHANGES = (
    Change(feature="rope", means="whole"),
    Change(feature="absent", means="not there", needs_copy=True),
    Change(feature="far", means="all", selection="full"),
)


class FakeWorkshop:
    """Names folders after features; the feature `absent` is not there."""

    def __init__(self, *, num_bytes: int = 10, controls: tuple[str, ...] = ("untrained",)) -> None:
        self.changes = CHANGES
        self.controls = controls
        self.num_bytes = num_bytes

    @contextmanager
    def variant(self, feature: str) -> Iterator[Path | None]:
        yield None if feature == "absent" else Path(feature)

    @contextmanager
    def control(self, name: str) -> Iterator[Path]:
        yield Path(name)


class FakeProgress:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.total = 0
        self.done = 0

    def begin(self, title: str) -> None:
        self.titles.append(title)

    def expect(self, total: int) -> None:
        self.total = total

    def advance(self, count: int) -> None:
        self.done += count


def ratio(value: float, error: float = 0.01) -> Ratio:
    return Ratio(value=value, standard_error=error, num_groups=9)


def ablation(feature: str, change: float, *, error: float = 0.01, shift: float = 1.0) -> AblationResult:
    return AblationResult(
        feature=feature,
        means="off",
        bits_per_byte=1.0,
        change=ratio(change, error),
        largest_shift=shift,
        worst_domain="chat",
        worst_change=change,
    )


def acceptance(domain: str, length: float, drafter: str = "trained", temperature: float = 0.0) -> Acceptance:
    return Acceptance(
        drafter=drafter,
        domain=domain,
        temperature=temperature,
        num_prompts=3,
        num_verify_steps=10,
        acceptance_length=ratio(length),
        positions=tuple(estimate_share(count, 10) for count in (9, 8, 7)),
    )


def needle_cell(selection: Any, right: int, *, depth: float = 0.5, num_tokens: int = 1024) -> NeedleCell:
    return NeedleCell(
        selection=selection, num_tokens=num_tokens, depth=depth, found=estimate_share(right, 20), chance=0.25
    )


def write_suite(path: Path, suite: Suite) -> Path:
    """Write a suite as JSON lines with blank lines between them; packed if the name says so."""
    rows = [suite.header, *suite.texts, *suite.dialogues, *suite.problems, *suite.needles, *suite.prompts]
    lines = [msgspec.json.encode(row) for row in rows]
    lines += [msgspec.json.encode({"kind": "filler", "text": text}) for text in suite.fillers]
    raw = b"\n\n".join(lines)
    path.write_bytes(lzma.compress(raw) if path.suffix == ".xz" else raw)
    return path


def good_findings() -> Findings:
    """Return what a model that meets every mark shows."""
    return Findings(
        bits=[
            DomainBits(
                domain="chat",
                num_texts=3,
                num_tokens=90,
                num_bytes=300,
                bits_per_byte=ratio(0.8),
                ngram_bits_per_byte=ratio(1.6),
                token_ngram=1.6,
            )
        ],
        problems=[
            ProblemCell(num_steps=steps, templates=forms, right=estimate_share(19, 20))
            for forms in ("seen", "held-out")
            for steps in (1, 2)
        ],
        needle=[
            needle_cell("learned", 19),
            needle_cell("full", 19),
            needle_cell("random", 5),
            needle_cell("local", 4),
            needle_cell("local", 20, depth=1.0),
        ],
        acceptance=[
            acceptance("word_problems", 3.5),
            acceptance("all", 3.0),
            acceptance("all", 1.0, "untrained"),
            acceptance("json", 1.2, "untrained"),
        ],
        lossless=[Lossless(num_prompts=10, num_identical=10, num_near_ties=0, num_different=0)],
        ablations=[ablation("shared expert", 0.3), ablation("block selection: full", -0.1)],
    )
