"""Make the modules of the demo's recipe importable; they are scripts, not part of the package."""

from __future__ import annotations

import sys
from pathlib import Path

RECIPE = Path(__file__).parents[2] / "recipes" / "demo"

if str(RECIPE) not in sys.path:
    sys.path.append(str(RECIPE))
