"""The sidebar, made from the tables of docs/README.md: the heading above each is the head of its pages."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from sphinx.application import Sphinx

INDEX = "docs/README"
LINK = re.compile(r"\]\(([^)#\s]+)\.md\)")
REST = "Repository"


def _fill(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname != INDEX:
        return
    groups = dict(_groups(source[0]))
    listed = {page for pages in groups.values() for page in pages}
    others = {page for page in app.env.found_docs if not page.startswith("docs/")} - listed
    source[0] += "".join(_tree(caption, pages) for caption, pages in {**groups, REST: sorted(others)}.items())


def _groups(text: str) -> Iterator[tuple[str, list[str]]]:
    caption, pages = "", list[str]()
    for line in [*text.splitlines(), "# end"]:
        if line.startswith("#"):
            if pages:
                yield caption, pages
            caption, pages = line.lstrip("# "), []
        elif line.startswith(("|", "- ")):
            linked = [posixpath.normpath(posixpath.join(posixpath.dirname(INDEX), link)) for link in LINK.findall(line)]
            pages += [page for page in linked if page not in pages]


def _tree(caption: str, pages: list[str]) -> str:
    return "\n".join(
        ["", "", "```{toctree}", ":hidden:", f":caption: {caption}", "", *(f"/{page}" for page in pages), "```", ""]
    )


def setup(app: Sphinx) -> dict[str, object]:
    """The extension."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": False}
