"""The bundled demo model: a small trained target of the family and its EAGLE-3 head, as data files.

Not here: any code of the network; the demo is an ordinary checkpoint folder.
"""

from pathlib import Path


def demo_path() -> Path:
    """Return the folder of the bundled target checkpoint."""
    return Path(__file__).resolve().parent / "checkpoint"


def demo_drafter_path() -> Path:
    """Return the folder of the bundled EAGLE-3 head."""
    return Path(__file__).resolve().parent / "eagle3"


def demo_suite_path() -> Path:
    """Return the file of the bundled evaluation suite."""
    return Path(__file__).resolve().parent / "evaluation" / "suite.jsonl.xz"
