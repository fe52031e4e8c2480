"""Text of others on a terminal: what would move its cursor, change colours or reorder a line is shown, not sent."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# C0, C1 and DEL; separators of lines and paragraphs; marks, overrides and isolates of direction; lone surrogates.
_ACTIVE: Final = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_IN_LINE: Final = re.compile(f"[{_ACTIVE}]")
_IN_BLOCK: Final = re.compile(f"(?!\n)[{_ACTIVE}]")


def printable(text: str) -> str:
    r"""The text on one line, with what a terminal would act on as escapes such as `\x1b` and `\n`."""
    return _IN_LINE.sub(_escaped, text)


def printable_block(text: str) -> str:
    """As `printable`, with its line breaks."""
    return _IN_BLOCK.sub(_escaped, text)


def printable_json(text: str) -> str:
    """A JSON document with the same meaning, in which a terminal finds nothing to act on."""
    return _IN_BLOCK.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(text: str, columns: int) -> str:
    """The text, cut to the number of characters with an ellipsis when it is longer."""
    return text if len(text) <= columns else text[: columns - 1] + "…"
