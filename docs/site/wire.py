"""The services, messages and enums of `proto/`, with their comments, as Markdown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

ROOT = Path(__file__).resolve().parents[2]
SERVICE, MESSAGE, ENUM = 6, 4, 5
"""Numbers of fields of a FileDescriptorProto, with which the place of a comment begins."""
Place = tuple[int, ...]


def as_markdown() -> str:
    """A section for each file: what clients call first, then what workers speak, then what both are made of."""
    buf = Path(sys.executable).with_name("buf")
    built = subprocess.run(
        [buf, "build", "proto", "--exclude-imports", "-o", "-"], cwd=ROOT, capture_output=True, check=True
    )
    files = sorted(FileDescriptorSet.FromString(built.stdout).file, key=lambda file: (not file.service, file.name))
    return "\n".join(line for file in files for line in _file(file))


def _file(file: FileDescriptorProto) -> Iterator[str]:
    comments: Mapping[Place, str] = {
        tuple(location.path): _one_line(location.leading_comments) for location in file.source_code_info.location
    }
    yield from (f"## {file.name.removeprefix('redflow/')}", "", f"[The file](../../proto/{file.name}).", "")
    for number, service in enumerate(file.service):
        yield from _service(service, (SERVICE, number), file.package, comments)
    for number, message in enumerate(file.message_type):
        yield from _message(message, (MESSAGE, number), file.package, comments)
    for number, enum in enumerate(file.enum_type):
        yield from _enum(enum, (ENUM, number), file.package, comments)


def _service(
    service: ServiceDescriptorProto, place: Place, package: str, comments: Mapping[Place, str]
) -> Iterator[str]:
    yield from _head(f"{package}.{service.name}", comments.get(place, ""))
    yield from ("| call | takes | answers | |", "|---|---|---|---|")
    for number, method in enumerate(service.method):
        takes = "stream of " * method.client_streaming + _link(method.input_type)
        answers = "stream of " * method.server_streaming + _link(method.output_type)
        yield f"| `{method.name}` | {takes} | {answers} | {_cell(comments.get((*place, 2, number), ''))} |"
    yield ""


def _message(message: DescriptorProto, place: Place, package: str, comments: Mapping[Place, str]) -> Iterator[str]:
    yield from _head(f"{package}.{message.name}", comments.get(place, ""))
    if message.field:
        yield from ("| field | number | type | |", "|---|---|---|---|")
    maps = {f".{package}.{message.name}.{entry.name}": entry for entry in message.nested_type}
    for number, field in enumerate(message.field):
        comment = _cell(comments.get((*place, 2, number), ""))
        if field.HasField("oneof_index") and not field.proto3_optional:
            comment = f"One of `{message.oneof_decl[field.oneof_index].name}`. {comment}"
        yield f"| `{field.name}` | {field.number} | {_type(field, maps)} | {comment} |"
    yield ""


def _enum(enum: EnumDescriptorProto, place: Place, package: str, comments: Mapping[Place, str]) -> Iterator[str]:
    yield from _head(f"{package}.{enum.name}", comments.get(place, ""))
    yield from ("| value | number | |", "|---|---|---|")
    for number, value in enumerate(enum.value):
        yield f"| `{value.name}` | {value.number} | {_cell(comments.get((*place, 2, number), ''))} |"
    yield ""


def _head(name: str, comment: str) -> tuple[str, ...]:
    return (f"({_label(name)})=", f"### {name.rpartition('.')[2]}", "", f"`{name}`", "", comment, "")


def _type(field: FieldDescriptorProto, maps: Mapping[str, DescriptorProto]) -> str:
    if field.type_name in maps:
        key, value = maps[field.type_name].field
        return f"map from {_type(key, {})} to {_type(value, {})}"
    name = _link(field.type_name) if field.type_name else FieldDescriptorProto.Type.Name(field.type)[5:].lower()
    return "list of " * (field.label == FieldDescriptorProto.LABEL_REPEATED) + name


def _link(full: str) -> str:
    name = full.removeprefix(".")
    return f"[{name.rpartition('.')[2]}](#{_label(name)})" if name.startswith("redflow.") else f"`{name}`"


def _label(name: str) -> str:
    return f"wire-{name.lower().replace('.', '-')}"


def _one_line(comment: str) -> str:
    return " ".join(comment.split())


def _cell(comment: str) -> str:
    return comment.replace("|", "\\|")
