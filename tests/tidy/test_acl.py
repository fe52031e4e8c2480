"""The user that the documents give to gateways may do exactly what a gateway does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from redflow_server.store.scripts import load_scripts

OPERATIONS: Final = Path(__file__).parents[2] / "docs" / "operations.md"
BY_ITSELF: Final = {"evalsha", "script|load", "subscribe", "ping", "info", "config|get"}


def test_the_documented_user_has_the_rights_that_scripts_need_and_no_others() -> None:
    settings = re.search(r"^ACL SETUSER redflow (on >secret .*?)^```", OPERATIONS.read_text(), re.M | re.S)
    assert settings
    documented = {word[1:] for word in settings[1].split() if word.startswith("+")}
    needed = {
        name.decode().lower()
        for script in load_scripts().values()
        for name in re.findall(rb"redis\.p?call\(\s*['\"](\w+)", script.source)
    }
    assert documented == needed | BY_ITSELF
