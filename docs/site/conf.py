"""How `make docs` builds the site: every Markdown document of the repository is a page, at its own path."""

from __future__ import annotations

import sys
from pathlib import Path

from pygments.lexers import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

from redflow_sdk.version import VERSION  # noqa: E402  # found by the path above

project = "redflow gateway"
version = release = VERSION

extensions = ["myst_parser", "sphinx.ext.autodoc", "docstrings", "generated", "links", "navigation", "type_names"]
include_patterns = ["*.md", "benchmarks/*.md", "docs/**.md", "redflow_server/**.md", "tests/**.md"]
exclude_patterns = [".*", "build", "**/__pycache__"]
root_doc = "docs/README"
templates_path = ["templates"]

myst_heading_anchors = 6
myst_all_links_external = True  # so that `links` sees them all, with their lines

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_display_short_literal_types = True
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

nitpicky = True
nitpick_ignore = [("py:class", "redflow_sdk.workflow._Decorator")]  # what `@workflow(...)` is before its function
nitpick_ignore_regex = [
    ("py:.*", r"(?:\w+\.)*(?:T|T_co|P|InputT|OutputT)"),  # type variables
    ("py:.*", r"(?!redflow).*"),  # what Python and the libraries have: there are no pages of it here
]

smartquotes = False  # code in a sentence keeps its quotes

html_theme = "furo"
html_title = f"redflow gateway {VERSION}"
html_additional_pages = {"index": "start.html"}
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_use_index = True
html_last_updated_fmt = None


def setup(app: Sphinx) -> None:
    """The diagrams in documents are drawn by who shows the files; here they are text."""
    app.add_lexer("mermaid", TextLexer)
