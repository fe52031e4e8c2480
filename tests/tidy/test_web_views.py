"""The views on the page about web applications start runs on a real gateway; the frameworks are stand-ins."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from redflow_sdk import Client, Context, workflow
from tests.conftest import StartWorker
from tests.tidy.how_to import HOW_TO, module_of
from tests.tidy.test_docs import blocks


class Flask:
    """Just enough of it: views stay the functions that they are."""

    def __init__(self, name: str) -> None:
        self.name = name

    def post(self, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # Any: any view
        return lambda view: view

    get = post


class Transaction:
    @staticmethod
    @contextlib.contextmanager
    def atomic() -> Iterator[None]:
        yield


def as_a_response(data: object, status: int, headers: dict[str, str] | None = None) -> tuple[object, ...]:
    return (data, status) if headers is None else (data, status, headers)


@workflow(name="order")
async def order(ctx: Context, order_id: str) -> str:
    return f"receipt-{order_id}"


@pytest.fixture(autouse=True)
def frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: dict[str, dict[str, object]] = {
        "flask": {"Flask": Flask},
        "django": {},
        "django.db": {"transaction": Transaction},
        "django.http": {"JsonResponse": as_a_response},
        "shop": {"order": order},
    }
    for name, attributes in modules.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)


def views() -> tuple[ModuleType, ModuleType]:
    """The one of Flask and the one of Django, which give up sooner than on the page."""
    flask, django = (
        module_of(one.replace("timeout=2", "timeout=0.3")) for one in blocks(HOW_TO / "web-views.md", "python")
    )
    return flask, django


async def test_views_start_one_run_for_an_order_and_show_it(
    client: Client, target: str, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDFLOW_TARGET", target)
    await start_worker(order)
    flask, django = views()
    started, status = await asyncio.to_thread(flask.place, "A-17")
    assert status == 202
    assert await asyncio.to_thread(django.place, None, "A-17") == ({"run": started["run"]}, 202)
    assert await client.handle(started["run"]).result(timeout=10) == "receipt-A-17"
    shown = await asyncio.to_thread(flask.show, started["run"])
    assert shown == {"status": "succeeded", "output": "receipt-A-17"}
    assert await asyncio.to_thread(flask.show, "run_none") == ({"error": "no such run"}, 404)
    for view in (flask, django):
        await asyncio.to_thread(view.redflow.close)


async def test_views_say_so_when_the_gateway_is_away(unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDFLOW_TARGET", f"127.0.0.1:{unused_tcp_port}")
    flask, django = views()
    answer = ({"error": "try again"}, 503, {"Retry-After": "5"})
    assert await asyncio.to_thread(flask.place, "A-17") == answer
    assert await asyncio.to_thread(django.place, None, "A-17") == answer
    for view in (flask, django):
        await asyncio.to_thread(view.redflow.close)
