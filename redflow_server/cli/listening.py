"""Addresses that a command listens on: how they are written, and why one of them will not do."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A host of this machine, and a port of it; 0 takes a free one."""

    host: str
    port: int


def address(host: str, port: int) -> str:
    """What clients give as their target."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def why_not_listening(host: str, port: int) -> str | None:
    """What the system says of an address on which one cannot listen; None when one can, by now. gRPC does not say."""
    where = f"cannot listen on {address(host, port)}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, place in found:
            with contextlib.closing(socket.socket(family, kind, protocol)) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
    except socket.gaierror as error:
        return f"{where}: {host} has no address ({error.strerror})"
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: "another program listens there",
            errno.EADDRNOTAVAIL: "this machine does not have the address",
            errno.EACCES: "this user may not use the port",
        }
        return f"{where}: {reasons.get(error.errno or 0) or os.strerror(error.errno or 0)}"
    return None
