"""Links of the documents, which are such as a browser of files follows: from page to page, or to a file of the code.

A link to a file or folder of the repository leads to a page that shows it, at its line. A link such as
`reference/client.md#redflow_sdk.Client.start` leads to the name. What is named in `code` and is in the reference
becomes a link, too.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import sources
from docutils import nodes
from public_names import named
from sources import ROOT
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

log = logging.getLogger(__name__)
_shown: set[str] = set()
"""The files and folders that pages link to, from the root."""


class Links(SphinxTransform):
    """Resolves what stands in a document."""

    default_priority = 500

    def apply(self) -> None:
        """As the base class has it."""
        if str(self.document["source"]).endswith(".md"):
            for link in [*self.document.findall(nodes.reference)]:
                if not re.match(r"[a-z]+:", link.get("refuri", "x:")):
                    self._resolve(link)
            for code in [*self.document.findall(nodes.literal)]:
                self._name(code)

    def _resolve(self, link: nodes.reference) -> None:
        path, _, anchor = unquote(link["refuri"]).partition("#")
        here = ROOT / f"{self.env.docname}.md"
        target = (here.parent / path).resolve() if path else here
        if not (target.exists() and target.is_relative_to(ROOT)):
            log.warning("a link to what is not there: %s", link["refuri"], location=link)
            return
        name = target.relative_to(ROOT).as_posix()
        page = name.removesuffix(".md")
        if page not in self.env.found_docs:
            _shown.add(name)
            link["refuri"] = self.env.app.builder.get_relative_uri(self.env.docname, sources.page_of(name))
            if anchor:
                link["refuri"] += f"#{re.sub('^L', 'L-', anchor)}"
        elif anchor.startswith("redflow_"):
            self._replace(link, refdomain="py", reftype="obj", reftarget=anchor, refwarn=True)
        else:
            self._replace(link, refdomain="doc", reftype="myst", reftarget=page, reftargetid=anchor or None)

    def _replace(self, link: nodes.reference, **attributes: object) -> None:
        inner = nodes.inline("", "", *link.children)
        reference = addnodes.pending_xref("", inner, refdoc=self.env.docname, refexplicit=True, **attributes)
        reference.source, reference.line = link.source, link.line
        link.replace_self(reference)

    def _name(self, code: nodes.literal) -> None:
        full = named(code.astext())
        if full is None or isinstance(
            code.parent, nodes.reference | addnodes.pending_xref | nodes.title | nodes.inline
        ):
            return
        reference = addnodes.pending_xref(
            "", refdomain="py", reftype="obj", reftarget=full, refdoc=self.env.docname, refexplicit=True, refwarn=True
        )
        code.replace_self(reference)
        reference += code


def _write_sources(app: Sphinx, exception: Exception | None) -> None:
    for name in sorted(_shown) if exception is None else ():
        path = app.outdir / f"{sources.page_of(name)}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sources.as_html(name))


def setup(app: Sphinx) -> dict[str, object]:
    """The extension."""
    app.add_transform(Links)
    app.connect("build-finished", _write_sources)
    return {"parallel_read_safe": False}
