"""Documents: links lead somewhere, generated pages are current, decisions have one form."""

from __future__ import annotations

import re

import pytest

from support.project import ROOT, load_tool, read, relative, text_files

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PAGES = [file for file in text_files() if file.suffix == ".md"]
DECISIONS = sorted((ROOT / "docs" / "adr").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page):
    targets = [link.partition("#")[0] for link in LINK.findall(read(page)) if "://" not in link]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_named_files_exist(page):
    """Paths in code spans of the project's own documents, from its root: `docs/...`, `tests/...`, and so on."""
    named = re.findall(r"`((?:docs|tests|tools|src|benchmarks|recipes)/[\w./-]*[\w/])(?:::\w+)?`", read(page))
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_reference_pages_are_current():
    pages = load_tool("make_reference_docs").build_pages()
    stale = [name for name, text in pages.items() if read(ROOT / "docs" / "reference" / name) != text]
    assert stale == [], "run tools/make_reference_docs.py"
    assert {path.name for path in (ROOT / "docs" / "reference").glob("*.md")} == set(pages)


@pytest.mark.parametrize("page", DECISIONS, ids=relative)
def test_decisions_have_one_form_and_one_page(page):
    text = read(page)
    assert re.match(rf"# {page.name[:4]} \S", text)
    for part in ("**Context.**", "**Decision.**", "**Consequences.**", "**What would change our mind.**"):
        assert text.count(part) == 1, f"{part} is missing"
    assert len(text.splitlines()) <= 45


def test_decisions_are_numbered_without_gaps():
    assert [page.name[:4] for page in DECISIONS] == [f"{i:04d}" for i in range(1, len(DECISIONS) + 1)]


def test_concept_pages_stay_short():
    assert [relative(p) for p in (ROOT / "docs" / "concepts").glob("*.md") if len(read(p).splitlines()) > 200] == []
