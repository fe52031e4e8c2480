"""Puts the line numbers of links right when code has moved; `make fmt` runs it.

A link such as [`name`](../path/file.py#L12) stands on the line where the name is defined, else on one that has it; of
several on the nearest to the old one. What it cannot find it says, and the exit code is 1.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[`(?P<symbol>[^\]`]+)`\]\((?P<path>[^)#\s]+)#L(?P<line>\d+)\)")
KEYWORDS = "async def|def|class|local function|local|message|enum|service|rpc"
DEFINITIONS = (r"\s*(?:{keywords}) {name}\b", r"\s*{name}(?:: [^=]+)? =")
"""What defines a name: a keyword before it, else an assignment."""


def relinked(document: Path) -> tuple[str, list[str]]:
    """The document with every link on its line, and the links that lead nowhere."""
    lost: list[str] = []

    def moved(link: re.Match[str]) -> str:
        target = (document.parent / link["path"]).resolve()
        lines = target.read_text().splitlines() if target.is_file() else []
        number = line_of(link["symbol"].removesuffix("()").rpartition(".")[2], lines, int(link["line"]))
        if number is None:
            lost.append(f"{document.relative_to(ROOT)}: {link[0]}")
            return link[0]
        return f"[`{link['symbol']}`]({link['path']}#L{number})"

    return LINK.sub(moved, document.read_text()), lost


def line_of(name: str, lines: list[str], near: int) -> int | None:
    """The number of the line that defines the name, else of the nearest one that has it."""
    named = [number for number, line in enumerate(lines, 1) if name in line]
    for pattern in DEFINITIONS:
        definition = re.compile(pattern.format(keywords=KEYWORDS, name=re.escape(name)))
        defined = [number for number in named if definition.match(lines[number - 1])]
        if defined:
            named = defined
            break
    return min(named, key=lambda number: abs(number - near), default=None)


def main() -> int:
    """The command."""
    lost: list[str] = []
    documents = [path for path in ROOT.rglob("*.md") if not path.relative_to(ROOT).parts[0].startswith(".")]
    for document in documents:
        text, lost_here = relinked(document)
        lost += lost_here
        if text != document.read_text():
            document.write_text(text)
    sys.stdout.writelines(f"{link}\n" for link in lost)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
