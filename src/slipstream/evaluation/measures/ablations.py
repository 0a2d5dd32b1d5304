"""What a feature of the network is worth: the change in bits when it is switched off, over the same texts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slipstream.evaluation.estimates import estimate_ratio
from slipstream.evaluation.findings import AblationResult
from slipstream.evaluation.measures.bits import ScoredText


def compare_bits(
    feature: str, means: str, texts: Sequence[ScoredText], before: Sequence[list[float]], after: Sequence[list[float]]
) -> AblationResult:
    """Return the change that an ablation makes.

    Args:
        feature: what was switched off.
        means: how.
        texts: what was scored.
        before, after: bits of every token of each text, with the feature and without.
    """
    num_bytes = [float(text.num_bytes) for text in texts]
    changes = [math.fsum(new) - math.fsum(old) for old, new in zip(before, after, strict=True)]
    shift = max((abs(x - y) for old, new in zip(before, after, strict=True) for x, y in zip(old, new, strict=True)))
    domains: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        domains.setdefault(text.domain, []).append(place)
    by_domain = {
        domain: math.fsum(changes[place] for place in places) / math.fsum(num_bytes[place] for place in places)
        for domain, places in domains.items()
    }
    worst = max(by_domain, key=lambda domain: by_domain[domain])
    return AblationResult(
        feature=feature,
        means=means,
        bits_per_byte=math.fsum(value for values in after for value in values) / math.fsum(num_bytes),
        change=estimate_ratio(changes, num_bytes),
        largest_shift=shift * math.log(2),
        worst_domain=worst,
        worst_change=by_domain[worst],
    )
