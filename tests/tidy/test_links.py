"""Documents point at what is there: files, lines, headings; and promise nothing about how the project is made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.source_files import ROOT, shown, tracked_files

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SYMBOL = re.compile(r"\[`?(?P<symbol>[^\]`]+)`?\]\((?P<path>[^)#\s]+)#L(?P<line>\d+)\)")
DOCUMENTS = [path for path in tracked_files() if path.suffix == ".md"]


def _heading_anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ +(.+?) *$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=shown)
def test_links_lead_somewhere(document: Path) -> None:
    dead = []
    for link in LINK.findall(re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        path = (document.parent / name).resolve() if name else document
        if anchor.startswith("redflow_"):  # a name of the reference, whose text is generated: for `make docs`
            anchor = ""
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in _heading_anchors(path)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=shown)
def test_a_document_has_no_place_that_is_still_to_be_filled(document: Path) -> None:
    assert [line for line in document.read_text().splitlines() if "<!--" in line] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=shown)
def test_a_link_to_a_line_shows_what_it_names(document: Path) -> None:
    """`[name](path#L12)` stands on a line that has the name."""
    wrong = []
    for match in SYMBOL.finditer(document.read_text()):
        lines = (document.parent / match["path"]).resolve().read_text().splitlines()
        number = int(match["line"])
        name = match["symbol"].removesuffix("()").rpartition(".")[2]
        if number > len(lines) or name not in lines[number - 1]:
            where = [at for at, line in enumerate(lines, 1) if name in line]
            wrong.append(f"{match[0]}: it stands on {where[:5]}")
    assert wrong == []


def test_the_project_names_no_path_of_a_machine() -> None:
    machine = re.compile(r"(?<![\w.$}])/(?:root|home|work)/\w+")
    texts = [
        path for path in tracked_files() if path.suffix in {".py", ".lua", ".md", ".toml", ".proto", ".yaml", ".sh"}
    ]
    assert [shown(path) for path in texts if path != Path(__file__) and machine.search(path.read_text())] == []


def test_readme_is_at_the_root() -> None:
    assert (ROOT / "README.md").is_file()
