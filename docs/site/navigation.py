"""The sidebar, made from the tables and lists of docs/README.md: the words above each are the head of its pages."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from sphinx.application import Sphinx

INDEX = "docs/README"
LINK = re.compile(r"\]\(([^)#\s]+)\.md\)")
REST = "Repository"


def _fill(app: Sphinx, docname: str, source: list[str]) -> None:
    folder, _, name = docname.rpartition("/")
    if name != "README" or not docname.startswith("docs/"):
        return
    groups = {caption: [*pages] for caption, pages in _groups(source[0], folder)}
    if docname == INDEX:
        listed = {page for pages in groups.values() for page in pages}
        groups[REST] = sorted(
            page for page in app.env.found_docs if not page.startswith("docs/") and page not in listed
        )
    else:
        inside = [page for pages in groups.values() for page in pages if page.startswith(f"{folder}/")]
        groups = {"": inside}
    source[0] += "".join(_tree(caption, pages) for caption, pages in groups.items() if pages)


def _groups(text: str, folder: str) -> Iterator[tuple[str, list[str]]]:
    caption, pages = "", list[str]()
    for line in [*re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S).splitlines(), "# end"]:
        if re.match(r"#+ |[^|\-*\s].*:$", line):
            if pages:
                yield caption, pages
            caption, pages = _caption(line), []
        elif line.startswith(("|", "- ", "* ")):
            found = [posixpath.normpath(posixpath.join(folder, link)) for link in LINK.findall(line)]
            pages += [page for page in found if page not in pages]


def _caption(line: str) -> str:
    words = line.lstrip("# ").rstrip(":").removeprefix("To ")
    return words[:1].upper() + words[1:]


def _tree(caption: str, pages: list[str]) -> str:
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "", "```{toctree}", *options, "", *(f"/{page}" for page in pages), "```", ""])


def setup(app: Sphinx) -> dict[str, object]:
    """The extension."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": False}
