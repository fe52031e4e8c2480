"""Options in the query of a Redis URL: those that a gateway takes, under redis-py's names.

What is missing is the gateway's own choice (the protocol, decoding, repeats), or nothing that a URL can say, such as a
class.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

FOR_SENTINELS: Final = {"sentinel_username": "username", "sentinel_password": "password"}
"""Options for the sentinels in a URL that names some, and how they are called there."""
OPTIONS: Final = frozenset(
    {
        *("db", "username", "password", "client_name", "max_connections", "health_check_interval"),
        *("socket_timeout", "socket_connect_timeout", "socket_keepalive", "socket_read_size"),
        *("ssl_keyfile", "ssl_certfile", "ssl_password", "ssl_ca_certs", "ssl_ca_path", "ssl_ca_data"),
        *("ssl_cert_reqs", "ssl_check_hostname", "ssl_min_version", "ssl_ciphers"),
        *("ssl_include_verify_flags", "ssl_exclude_verify_flags"),
    }
)


def options_of(url: str) -> dict[str, str]:
    """The options of a URL by name; of those that come twice the last."""
    return dict(parse_qsl(url.partition("?")[2], keep_blank_values=True))


def check_options(url: str) -> None:
    """Raises ValueError with the first one that is none; for a "#" too, behind which nothing would be read."""
    if "#" in url:
        raise ValueError("a # in it has to be written as %23")
    for name in options_of(url):
        if name not in OPTIONS | FOR_SENTINELS.keys():
            raise ValueError(f"{name} is no option of a Redis URL")
