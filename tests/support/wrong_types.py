"""Values that a strict request model must not take for what they look like."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

WRONG: dict[Any, list[Any]] = {
    float: ["0.5", True, [], {}],
    int: ["5", True, 5.5, 5.0, []],
    bool: [1, 0, "true", "false", []],
}


def check_exact_types(model: type[BaseModel], base: dict[str, Any]) -> int:
    """Offer wrong values to every number and switch of a model, and return how many were refused.

    Args:
        model: the request model.
        base: a body that it accepts.
    """
    checked = 0
    for name, field in model.model_fields.items():
        for kind, values in WRONG.items():
            if field.annotation not in (kind, kind | None):
                continue
            for value in values:
                checked += 1
                with pytest.raises(ValidationError):
                    model.model_validate(base | {name: value})
    return checked
