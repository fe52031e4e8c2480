"""The image is made of what it needs."""

from __future__ import annotations

from tests.tidy.source_files import ROOT


def test_the_builder_is_sent_what_the_image_copies_and_nothing_else() -> None:
    steps = [line.split() for line in (ROOT / "docker" / "Dockerfile").read_text().splitlines()]
    copied = {source for step in steps if step[:1] == ["COPY"] for source in step[1:-1]}
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == copied
    assert all((ROOT / source).exists() for source in copied)
