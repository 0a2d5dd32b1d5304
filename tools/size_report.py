"""Print lines of code per room, and with a revision given, the difference to it.

Usage: size_report.py [revision]. Code lines are lines that are neither blank, comment nor docstring.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "src/slipstream"


def count_code_lines(source: str) -> int:
    """Return the lines of `source` that hold code: no blanks, comments or docstrings."""
    skip = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skip:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - _docstring_lines(source))


def _docstring_lines(source: str) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def room_of(path: str) -> str:
    """Return the room of a file under the package: its first folder, or the file's own name."""
    return path.removeprefix(PACKAGE + "/").split("/")[0]


def measure_tree() -> Counter[str]:
    """Return code lines per room of the working tree."""
    sizes: Counter[str] = Counter()
    for file in sorted((ROOT / PACKAGE).rglob("*.py")):
        sizes[room_of(file.relative_to(ROOT).as_posix())] += count_code_lines(file.read_text(encoding="utf-8"))
    return sizes


def measure_revision(revision: str) -> Counter[str]:
    """Return code lines per room of a committed revision."""
    listing = _git("ls-tree", "-r", "--name-only", revision, "--", PACKAGE)
    sizes: Counter[str] = Counter()
    for path in filter(lambda name: name.endswith(".py"), listing.splitlines()):
        sizes[room_of(path)] += count_code_lines(_git("show", f"{revision}:{path}"))
    return sizes


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> int:
    """Print the table, largest room first."""
    now = measure_tree()
    before = measure_revision(sys.argv[1]) if len(sys.argv) > 1 else None
    for room, lines in sorted(now.items(), key=lambda item: -item[1]):
        print(f"{room:<14}{lines:>8}" + (f"{lines - before[room]:>+8}" if before is not None else ""))
    total = sum(now.values())
    print(f"{'total':<14}{total:>8}" + (f"{total - sum(before.values()):>+8}" if before is not None else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
