"""The names of drafters that are trained here, and why others are not. Not here: training them (`registry`)."""

from __future__ import annotations

from slipstream.base.errors import ConfigError, UnsupportedFeature

TRAINED = ("eagle3",)

REFUSED = {
    "dspark": "block drafting is not part of this release, so that a trained one could be neither served nor measured",
    "dflash": "block drafting is not part of this release, so that a trained one could be neither served nor measured",
    "ngram": "it has no weights",
    "none": "it has no weights",
}


def check_kind(kind: str) -> str:
    """Return a kind of drafter that is trained here.

    Raises:
        UnsupportedFeature: a drafter that is known and not trained here; the message says why.
        ConfigError: an unknown word.
    """
    allowed = ", ".join(TRAINED)
    if kind in REFUSED:
        raise UnsupportedFeature(f"train-drafter {kind}: {REFUSED[kind]}; allowed: {allowed}", param="drafter")
    if kind not in TRAINED:
        raise ConfigError(f"train-drafter {kind}: no such drafter; allowed: {allowed}")
    return kind
