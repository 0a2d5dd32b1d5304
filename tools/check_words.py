"""Fail on spellings that docs/words.md refuses.

The words come from the last column of that page's tables; only `code` spans count.
Usage: check_words.py [root].
"""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEVER_COLUMN = "never"


@dataclass(frozen=True)
class Hit:
    """A refused word in a source line."""

    path: Path
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: '{self.word}' is refused by docs/words.md; write {self.instead}"


def read_refused_words(page: str) -> dict[str, str]:
    """Return refused word -> what to write instead, from every table that has a `never` column."""
    refused: dict[str, str] = {}
    columns: list[str] = []
    for line in page.splitlines():
        if not line.startswith("|"):
            columns = []
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not columns:
            columns = cells
        elif NEVER_COLUMN in columns and len(cells) == len(columns):
            instead = cells[columns.index("write")] or cells[0]
            for word in re.findall(r"`([^`]+)`", cells[columns.index(NEVER_COLUMN)]):
                refused[word] = instead
    return refused


def read_allowed(path: Path) -> tuple[tuple[str, str], ...]:
    """Return (word, path prefix) pairs of the exceptions file; each must carry a reason."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("allow", [])
    for entry in entries:
        if not entry.get("reason"):
            raise SystemExit(f"{path}: the exception for {entry.get('word')!r} has no reason")
    return tuple((entry["word"], entry["path"]) for entry in entries)


def find_hits(text: str, path: Path, refused: dict[str, str], allowed: tuple[tuple[str, str], ...]) -> list[Hit]:
    """Return the refused words of one file; a hit is a whole word, letter case ignored."""
    if not refused:
        return []
    pattern = re.compile(
        r"(?<![A-Za-z0-9_])(" + "|".join(map(re.escape, refused)) + r")(?![A-Za-z0-9_])", re.IGNORECASE
    )
    spared = {word for word, prefix in allowed if path.as_posix().startswith(prefix)}
    return [
        Hit(path, number, match[1], refused[match[1].lower()])
        for number, line in enumerate(text.splitlines(), 1)
        for match in pattern.finditer(line)
        if match[1].lower() not in spared
    ]


def main(root: Path = ROOT) -> int:
    """Check every Python file of the package; print hits and return the exit status."""
    refused = read_refused_words((root / "docs" / "words.md").read_text(encoding="utf-8"))
    if not refused:
        print("docs/words.md: no table with a 'never' column")
        return 1
    allowed = read_allowed(root / "tools" / "words_allowed.toml")
    package = root / "src" / "slipstream"
    hits = [
        hit
        for file in sorted(package.rglob("*.py"))
        for hit in find_hits(file.read_text(encoding="utf-8"), file.relative_to(package), refused, allowed)
    ]
    for hit in hits:
        print(hit)
    return 1 if hits else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT))
