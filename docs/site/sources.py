"""Pages that show a file of the repository, with an anchor for each line, or what a folder has."""

from __future__ import annotations

import html
from functools import cache
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parents[2]
# Without the sidebar of the documentation, which takes longer to make than all else.
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{name}</title>
<style>
{style}
body {{ margin: 1rem; font-family: sans-serif }}
a:target + a + *, a:target + a {{ background: #ffa }}
</style>
<p><a href="{start}">redflow gateway</a> / {name}</p>
{body}
</html>
"""


def page_of(name: str) -> str:
    """The page of a file or folder, which is named from the root of the repository."""
    return f"source/{name}"


def as_html(name: str) -> str:
    """What stands on it."""
    path = ROOT / name
    start = "../" * (page_of(name).count("/")) + "index.html"
    body = _listing(path) if path.is_dir() else _code(path)
    return PAGE.format(name=html.escape(name), style=_formatter().get_style_defs(".highlight"), start=start, body=body)


@cache
def _formatter() -> HtmlFormatter[str]:
    return HtmlFormatter(lineanchors="L", linenos="inline", anchorlinenos=True, wrapcode=True)


def _code(path: Path) -> str:
    try:
        lexer = get_lexer_for_filename(path.name, stripnl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False)
    return highlight(path.read_text(), lexer, _formatter())


def _listing(path: Path) -> str:
    names = sorted(file.name for file in path.iterdir() if not file.name.startswith(("_", ".")))
    return "<ul>" + "".join(f"<li><code>{html.escape(name)}</code></li>" for name in names) + "</ul>"
