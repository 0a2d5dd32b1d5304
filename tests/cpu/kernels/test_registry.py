from __future__ import annotations

import dataclasses

import pytest

from slipstream.kernels.registry import IMPLEMENTATIONS, Implementation, Kernel

EVERYWHERE = Implementation("reference", 0, frozenset({"cpu"}))
SOMEWHERE = Implementation("fast", 1, frozenset({"cuda"}), frozenset({"moe/route"}))


@pytest.mark.parametrize(
    ("rule", "operation", "device_type", "fits"),
    [
        (EVERYWHERE, "moe/route", "cpu", True),
        (EVERYWHERE, "anything/else", "cpu", True),
        (EVERYWHERE, "moe/route", "cuda", False),
        (SOMEWHERE, "moe/route", "cuda", True),
        (SOMEWHERE, "moe/experts", "cuda", False),
        (SOMEWHERE, "moe/route", "cpu", False),
    ],
)
def test_a_rule_fits_by_operation_and_device(rule, operation, device_type, fits):
    assert rule.fits(operation, device_type) is fits


def test_the_reference_offers_every_operation_at_the_lowest_priority():
    reference = next(rule for rule in IMPLEMENTATIONS if rule.name == "reference")
    assert reference.operations is None
    assert reference.priority == min(rule.priority for rule in IMPLEMENTATIONS) == 0
    assert reference.fits("any/operation", "cpu")


def test_kernels_and_rules_cannot_be_changed():
    kernel = Kernel("moe/route", "reference", print)
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.implementation = "other"
    with pytest.raises(dataclasses.FrozenInstanceError):
        EVERYWHERE.priority = 2
