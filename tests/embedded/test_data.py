"""The data of an embedded store: what outlives it, and that only one server ever has it."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from pathlib import Path

import pytest

from redflow_server.embedded import EmbeddedStore, EmbeddedStoreError
from tests.embedded.processes import connected, holder_of, is_alive, wait_until

needs_linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_what_was_written_is_there_after_a_stop_and_a_start(data_dir: Path) -> None:
    store = EmbeddedStore(data_dir)
    for number in range(3):
        with store, connected(store) as redis:
            assert redis.incr("starts") == number + 1


def test_another_store_on_the_directory_finds_the_data_of_the_first(data_dir: Path) -> None:
    with EmbeddedStore(data_dir) as first, connected(first) as redis:
        redis.set("a", b"\x00\xff")

    with EmbeddedStore(data_dir) as second, connected(second) as redis:
        assert redis.get("a") == b"\x00\xff"


def test_without_a_directory_the_data_goes_with_the_server() -> None:
    store = EmbeddedStore()
    with store, connected(store) as redis:
        redis.set("a", 1)
    with store, connected(store) as redis:
        assert redis.get("a") is None


def test_a_crash_loses_nothing_that_was_flushed_and_of_the_rest_only_the_end(data_dir: Path) -> None:
    store = EmbeddedStore(data_dir)
    with store:
        with connected(store) as redis:
            redis.rpush("numbers", *range(100))
            flushed = redis.execute_command("WAITAOF", 1, 0, 5000)  # type: ignore[no-untyped-call]  # redis-py
            assert flushed[0] == 1, "it is on disk"
            for number in range(100, 200):
                redis.rpush("numbers", number)
        url = store.url

        store.kill()
        assert not store.is_running
        store.start()

        assert store.url == url, "its clients find it again"
        with connected(store) as redis:
            found = list(map(int, redis.lrange("numbers", 0, -1)))
    assert len(found) >= 100
    assert found == list(range(len(found)))


def test_a_second_store_on_the_directory_is_refused_in_one_sentence_and_the_first_goes_on(data_dir: Path) -> None:
    second = EmbeddedStore(data_dir)
    with EmbeddedStore(data_dir) as first, connected(first) as redis:
        for _ in range(2):
            with pytest.raises(EmbeddedStoreError) as refused:
                second.start()
            assert str(refused.value) == f"another process uses the data in {data_dir}"
            second.stop()

        assert redis.ping()

    with second, connected(second) as redis:
        assert redis.ping()


def test_a_store_of_another_process_is_refused_too(data_dir: Path) -> None:
    with holder_of(data_dir), pytest.raises(EmbeddedStoreError, match="another process uses the data"):
        EmbeddedStore(data_dir).start()


@needs_linux
def test_a_store_whose_process_is_killed_ends_and_leaves_its_data(data_dir: Path) -> None:
    with holder_of(data_dir) as holder:
        assert is_alive(holder.server_pid)

        holder.kill()

        wait_until(lambda: not is_alive(holder.server_pid))
    with EmbeddedStore(data_dir) as store, connected(store) as redis:
        assert redis.ping()


@needs_linux
def test_a_server_that_takes_long_to_end_after_its_process_was_killed_still_has_its_data_for_itself(
    data_dir: Path,
) -> None:
    with holder_of(data_dir) as holder:
        os.kill(holder.server_pid, signal.SIGSTOP)
        holder.kill()
        assert is_alive(holder.server_pid)

        second = EmbeddedStore(data_dir)
        try:
            with pytest.raises(EmbeddedStoreError, match="another process uses the data"):
                second.start()
        finally:
            second.stop()


def test_a_server_that_is_about_to_end_is_waited_for(data_dir: Path) -> None:
    data_dir.mkdir()
    lock = (data_dir / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    ends = threading.Timer(0.3, lock.close)
    ends.start()
    with EmbeddedStore(data_dir) as store, connected(store) as redis:
        assert redis.ping()
    ends.join()


def test_a_directory_may_be_called_anything(tmp_path: Path) -> None:
    for name in ('a "quoted" name', "deeper/a'b", "\N{GREEK SMALL LETTER OMEGA}"):
        store = EmbeddedStore(tmp_path / name)
        for number in range(2):
            with store, connected(store) as redis:
                assert redis.incr("starts") == number + 1, name


def test_a_directory_may_be_given_relative_to_where_the_process_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with EmbeddedStore(Path("data")) as store, connected(store) as redis:
        redis.set("a", 1)
    assert (tmp_path / "data" / "appendonlydir").is_dir()


# ---- directories that will not do ----


@pytest.mark.parametrize("below", [".", "data"])
def test_a_file_where_the_directory_should_be_is_named(tmp_path: Path, below: str) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    store = EmbeddedStore(taken / below)

    with pytest.raises((EmbeddedStoreError, OSError), match="taken"):
        store.start()

    assert not store.is_running
    store.stop()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_directory_that_may_not_be_written_to_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises((EmbeddedStoreError, OSError), match=tmp_path.name):
            EmbeddedStore(tmp_path).start()
    finally:
        tmp_path.chmod(0o700)


def test_a_server_that_does_not_start_is_told_of_and_leaves_the_directory_free(data_dir: Path) -> None:
    manifest = data_dir / "appendonlydir" / "appendonly.aof.manifest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("nonsense")
    store = EmbeddedStore(data_dir)

    with pytest.raises(EmbeddedStoreError, match=r"^the embedded store ended with code \d+ at its start$"):
        store.start()

    assert not store.is_running
    assert (data_dir / "store.log").read_text(), "its log says why"
    manifest.unlink()
    with EmbeddedStore(data_dir) as second, connected(second) as redis:
        assert redis.ping()
