"""Where the text comes from, and the one line if it is unreadable or its tokens cannot be saved."""

import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from guard import UserError
from mingpt import data

TEXTS = {
    "missing": (None, r"cannot read --data .*: No such file or directory"),
    "not text": (b"a\xff\xfe", r"cannot read --data .*: 'utf-8' .* decode byte 0xff in position 1"),
    "short": (b"s" * 50, r"the text has 50 tokens, .* than block_size, 64: .* at most 44$"),
    "shorter": (b"a text of nineteen.", r"the text has 19 tokens, but must have 20"),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_that_cannot_be_learnt(kind, group, config, tmp_path):
    content, message = TEXTS[kind]
    path = tmp_path / "text"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        data.load(config(data=str(path), block_size=64))


def test_a_url(group, config, tmp_path):
    content = "some text, ümlaut " * 20
    (tmp_path / "text").write_text(content)
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        dataset = data.load(config(data=f"{url}/text"))
        with pytest.raises(UserError, match=r"none: File not found$"):
            data.read(f"{url}/none")
        server.shutdown()
    letters = [*dataset.numbers, *dataset.val.numbers]
    assert "".join(dataset.about["vocabulary"][letter] for letter in letters) == content


@pytest.mark.parametrize("name", ["file", "no UTF-8: \udcff"])
def test_a_cache_that_cannot_be_written(name, group, config, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=rf"cannot keep the tokens in .*{name}.*: make room, or"):
        data.load(config(cache=str(tmp_path / name)))
    assert [*tmp_path.iterdir()] == [tmp_path / "file"]


def test_a_url_that_sends_too_slowly(monkeypatch):
    class Answer:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def read1(self):
            return b"."  # for ever

    monkeypatch.setattr(data, "urlopen", lambda *_, **__: Answer())
    with pytest.raises(TimeoutError, match="not complete after 0 s"):
        data._download("http://slow", patience=0)


def test_a_text_that_is_a_fifo(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UserError, match=r"cannot read --data .*fifo: no regular file"):
        data.read(str(tmp_path / "fifo"))
