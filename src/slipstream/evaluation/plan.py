"""How much a run measures. Not here: the measuring, and what the suite holds."""

from __future__ import annotations

import msgspec

MEASURES = ("bits", "problems", "needle", "speculation", "ablations")
"""Names of the measurements, in the order of a report."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a run; a suite with less gives what it has.

    Args:
        name: `full` or `quick`.
        measures: which of `MEASURES` to take.
        num_texts: held-out texts of each domain.
        max_text_tokens: tokens of a text that are scored.
        has_byte_ngrams: also train the n-gram model over bytes, and take the better of the two.
        num_problems: problems for each number of steps and kind of templates.
        needle_lengths: prompt lengths, tokens; those that the model cannot hold are left out.
        needle_depths: places of the fact, 0 at the beginning and 1 at the end.
        num_needles: facts per length and depth.
        num_prompts: prompts that are answered with and without the drafter.
        num_sampled: of them, answered at temperature 1 as well.
        num_control: of them, answered with each control drafter.
        max_tokens: longest answer to a prompt.
        max_problem_tokens, max_needle_tokens: longest answers to problems and to questions about a fact.
        num_ablation_texts: texts of each domain that every ablation scores.
        max_copy_bytes: largest checkpoint of which changed copies are made.
        seed: order and choice of rows.
    """

    name: str
    measures: tuple[str, ...] = MEASURES
    num_texts: int
    max_text_tokens: int = 2048
    has_byte_ngrams: bool
    num_problems: int
    needle_lengths: tuple[int, ...]
    needle_depths: tuple[float, ...]
    num_needles: int
    num_prompts: int
    num_sampled: int
    num_control: int
    max_tokens: int = 64
    max_problem_tokens: int = 96
    max_needle_tokens: int = 24
    num_ablation_texts: int
    max_copy_bytes: int = 4 * 2**30
    seed: int = 0


FULL = Plan(
    name="full",
    num_texts=100,
    has_byte_ngrams=True,
    num_problems=500,
    needle_lengths=(256, 512, 1024, 2000, 4000),
    needle_depths=(0.0, 0.25, 0.5, 0.75, 1.0),
    num_needles=20,
    num_prompts=1000,
    num_sampled=400,
    num_control=200,
    num_ablation_texts=24,
)
QUICK = Plan(
    name="quick",
    num_texts=12,
    has_byte_ngrams=False,
    num_problems=12,
    needle_lengths=(256, 1024),
    needle_depths=(0.0, 0.5, 1.0),
    num_needles=3,
    num_prompts=64,
    num_sampled=48,
    num_control=24,
    num_ablation_texts=3,
)
