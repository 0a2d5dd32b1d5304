"""Write the records of tests/data/dialogues anew from the dialogues themselves: `record_dialogues.py`.

To be run after a change of a template or of a dialogue; then read what git shows as changed. Tests compare the records
with what the product makes, and with a second writing of both formats.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from support import dialogues  # noqa: E402


def main() -> None:
    """Record every dialogue with every template."""
    processors = {name: dialogues.processor(source) for name, source in dialogues.SOURCES.items()}
    for name in dialogues.names():
        asked = dialogues.dialogue(name)
        records = {template: dialogues.record(asked, through) for template, through in processors.items()}
        path = dialogues.FOLDER / f"{name}.json"
        path.write_text(dialogues.file_text(asked | {"records": records}), encoding="utf-8")
    print(f"{len(dialogues.names())} dialogues recorded with {len(processors)} templates")


if __name__ == "__main__":
    main()
