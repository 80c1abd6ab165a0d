"""Looking a data file up: the order of the places, and what is said when there is none."""

import functools
import http.server
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from quietgrad.datasets import DataNotFoundError, RawFile, files

FILE = RawFile("wine.csv", "http://example.invalid/wine.csv")


def upper(text: str) -> str:
    if not text.startswith("from"):
        raise ValueError("expected 'from', found " + repr(text))
    return text.upper()


def no_download(url: str) -> bytes:
    raise ConnectionError(f"offline, so {url} was not fetched")


def no_answer(url: str) -> bytes:
    raise AssertionError(f"{url} was asked for although the file is at hand")


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "named"
    folder.mkdir()
    monkeypatch.setenv("QUIETGRAD_DATA", str(folder))
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "not" / "there" / "yet"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "quietgrad"


def put(folder: Path, content: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE.name).write_text(content)


def test_named_folder_comes_first(named: Path, cache: Path):
    put(named, "from named")
    put(cache, "from cache")
    assert files.load(FILE, upper, no_answer) == "FROM NAMED"


@pytest.mark.usefixtures("named")
def test_cache_comes_second(cache: Path):
    put(cache, "from cache")
    assert files.find(FILE) == cache / FILE.name
    assert files.load(FILE, upper, no_answer) == "FROM CACHE"


@pytest.mark.usefixtures("named")
def test_download_comes_last_and_is_kept(cache: Path):
    assert files.find(FILE) is None
    found = files.load(FILE, upper, lambda url: f"from {url}".encode())
    assert found == f"FROM {FILE.url}".upper()
    assert [path.name for path in cache.iterdir()] == [FILE.name]
    assert files.load(FILE, upper, no_answer) == found


@pytest.mark.usefixtures("named")
def test_download_with_wrong_content_is_not_kept(cache: Path):
    with pytest.raises(ValueError, match="unexpected content in http://example.invalid/wine.csv"):
        files.load(FILE, upper, lambda _: b"<html>please log in</html>")
    assert not (cache / FILE.name).exists()


@pytest.mark.usefixtures("named")
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    blocked = tmp_path / "a file, not a folder"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert files.load(FILE, upper, lambda _: b"from afar") == "FROM AFAR"


@pytest.mark.usefixtures("cache")
def test_wrong_content_names_the_file_and_what_was_found(named: Path):
    put(named, "something else")
    with pytest.raises(ValueError, match="expected 'from', found 'something else'") as caught:
        files.load(FILE, upper)
    assert str(named / FILE.name) in str(caught.value)


@pytest.mark.usefixtures("cache")
def test_bytes_that_are_no_text_are_wrong_content(named: Path):
    (named / FILE.name).write_bytes(b"from \xff\xfe")
    with pytest.raises(ValueError, match="unexpected content in"):
        files.load(FILE, upper)


def three_ways(message: str, cache: Path, url: str) -> None:
    assert "set QUIETGRAD_DATA to a folder that holds wine.csv" in message
    assert f"put wine.csv into the cache folder {cache}" in message
    assert "pip install 'quietgrad[study]'" in message
    assert f"downloaded from {url}" in message


def test_missing_file_says_the_three_ways(named: Path, cache: Path):
    with pytest.raises(DataNotFoundError) as caught:
        files.load(FILE, upper, no_download)
    assert isinstance(caught.value, FileNotFoundError)
    assert f"QUIETGRAD_DATA={named}" in str(caught.value)
    assert "offline, so" in str(caught.value)
    three_ways(str(caught.value), cache, FILE.url)


@pytest.fixture
def no_pooch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uninstall: Callable[[str], None]):
    monkeypatch.delenv("QUIETGRAD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    uninstall("pooch")


@pytest.mark.usefixtures("no_pooch")
def test_missing_pooch_says_the_three_ways(tmp_path: Path):
    with pytest.raises(DataNotFoundError, match="pooch") as caught:
        files.load(FILE, upper)
    assert "QUIETGRAD_DATA is not set" in str(caught.value)
    three_ways(str(caught.value), tmp_path / "quietgrad", FILE.url)


@pytest.mark.usefixtures("no_pooch")
def test_cache_is_read_without_pooch(tmp_path: Path):
    put(tmp_path / "quietgrad", "from cache")
    assert files.load(FILE, upper) == "FROM CACHE"


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.mark.usefixtures("named")
def test_refused_connection_says_the_three_ways(listener: socket.socket, cache: Path):
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/wine.csv"
    listener.close()
    with pytest.raises(DataNotFoundError) as caught:
        files.load(RawFile(FILE.name, url), upper)
    three_ways(str(caught.value), cache, url)


@pytest.mark.usefixtures("named")
def test_a_server_that_never_answers_is_given_up(listener: socket.socket, cache: Path):
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/wine.csv"
    soon = functools.partial(files.download, timeout=(0.2, 0.2))
    with pytest.raises(DataNotFoundError, match=r"read timeout=0\.2") as caught:
        files.load(RawFile(FILE.name, url), upper, soon)
    three_ways(str(caught.value), cache, url)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        found = self.path == "/wine.csv"
        body = b"from the server" if found else b"nothing here"
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object):  # noqa: A002
        del format, args


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("no_proxy", "*")
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.mark.usefixtures("named")
def test_download_over_http(server: str, cache: Path):
    assert files.load(RawFile(FILE.name, f"{server}/wine.csv"), upper) == "FROM THE SERVER"
    assert (cache / FILE.name).read_text() == "from the server"


@pytest.mark.usefixtures("named")
def test_an_address_without_the_file_is_not_content(server: str, cache: Path):
    with pytest.raises(DataNotFoundError, match="404"):
        files.load(RawFile(FILE.name, f"{server}/elsewhere.csv"), upper)
    assert not (cache / FILE.name).exists()
