"""Follows every link of the built site, to files and to places in them. With dead ones the exit code is 1."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).resolve().parents[2] / "build" / "docs"


@dataclass
class Page:
    """What a page has: names of places, and links."""

    places: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and (name == "id" or (name == "name" and tag == "a")):
                self.page.places.add(value)
            elif value and name in ("href", "src"):
                self.page.links.add(value)


def read(path: Path) -> Page:
    """A page of the site."""
    reader = _Reader()
    reader.feed(path.read_text())
    return reader.page


def dead_links(site: Path) -> list[str]:
    """Each link that leads nowhere, with its page."""
    pages = {path: read(path) for path in sorted(site.rglob("*.html"))}
    dead = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            if not target.is_file() or (place and target in pages and place not in pages[target].places):
                dead.append(f"{path.relative_to(site)}: {link}")
    return dead


def main() -> int:
    """The command."""
    dead = dead_links(SITE)
    sys.stdout.writelines(f"a dead link in {link}\n" for link in dead)
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
