"""The command line as its own help has it: `redflow`, each noun, each verb."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

# How wide argparse writes, and that it reads no defaults of this machine.
os.environ |= {"COLUMNS": "100", "NO_COLOR": "1"}
for _name in [name for name in os.environ if name.startswith("REDFLOW_")]:
    del os.environ[_name]

from redflow_server.cli.program import NOUNS, command_parser  # noqa: E402  # its defaults are read above


def as_markdown() -> str:
    """A section for each noun, with the help of the noun and of its verbs."""
    sections = [_help(command_parser(""))]
    for noun in NOUNS:
        parser = _children(command_parser(noun))[noun]
        sections += [f"## redflow {noun}", _help(parser)]
        for verb in _children(parser).values():
            sections += [f"### {verb.prog}", _help(verb)]
    return "\n\n".join(sections)


def _help(parser: argparse.ArgumentParser) -> str:
    return f"```text\n{parser.format_help()}```"


def _children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return dict(_named(parser))


def _named(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()
