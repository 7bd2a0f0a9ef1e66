"""Where the text comes from, and what is said if it cannot be had or its tokens not be kept."""

import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from guard import UserError
from mingpt import data

TEXTS = {
    "missing": (None, r"cannot read --data .*: No such file or directory"),
    "not text": (b"a\xff\xfe", r"cannot read --data .*: it is not UTF-8 at byte 1"),
    "short": (b"s" * 50, r"the text has 50 tokens, .* but block_size is 64: .* at most 44$"),
    "shorter": (b"a text of nineteen.", r"the text has 19 tokens, but must have 20"),
    "empty": (b"", r"the text has 0 tokens, but must have 20"),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_that_cannot_be_learnt(kind, group, config, tmp_path):
    content, message = TEXTS[kind]
    path = tmp_path / "text"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        data.load(config(data=str(path), block_size=64))


URLS = {
    "http://127.0.0.1:9/text": "Connect call failed",
    "ftp://127.0.0.1:9/x": "Connection refused",
    "nowhere://x": "Protocol not known: nowhere",
}


@pytest.mark.parametrize("url", URLS)
def test_a_url_that_cannot_be_reached(url):
    with pytest.raises(UserError, match=f"cannot read --data {url}: {URLS[url]}") as mistake:
        data.read(url)
    assert "\n" not in str(mistake.value)


def test_a_url_that_can_be(tmp_path):
    (tmp_path / "text").write_text("some text, ümlaut")
    assert data.read(f"file://{tmp_path}/text") == "some text, ümlaut"


def test_a_url_that_is_out_of_reach_the_next_time(group, config, tmp_path, text, capsys):
    handler = partial(SimpleHTTPRequestHandler, directory=text.parent)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        url = f"http://127.0.0.1:{server.server_port}/{text.name}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        first = data.load(config(data=url))
        server.shutdown()
    assert len(first) + len(first.val) == len(text.read_text())
    again = data.load(config(data=url))
    assert again.about == first.about and np.array_equal(again.numbers, first.numbers)
    (kept,) = (tmp_path / "data").glob("*.tokens")
    said = capsys.readouterr().out
    assert re.search(f"cannot read --data {url}: .*: going on with what it .* {kept}\n$", said)
    (last,) = (tmp_path / "data").glob("*.last")
    for spoilt in (b"\xff", b""):
        last.write_bytes(spoilt)
        with pytest.raises(UserError, match=f"cannot read --data {url}: Connect call failed"):
            data.load(config(data=url))
    last.write_text(kept.name)
    kept.unlink()
    with pytest.raises(UserError, match=f"cannot read --data {url}: Connect call failed"):
        data.load(config(data=url))


def test_a_url_and_a_cache_that_is_full_but_cannot_be_written(tmp_path, text):
    """The folder in the place of the note stands for a disk that may only be read."""
    url = f"file://{text}"
    path = data.prepare(url, "chars", tmp_path)
    (last,) = tmp_path.glob("*.last")
    last.unlink()
    last.mkdir()
    assert data.prepare(url, "chars", tmp_path) == path


def test_a_url_that_gives_no_text(tmp_path):
    (tmp_path / "text").write_text("some text")
    url = f"file://{tmp_path}/text"
    data.prepare(url, "chars", tmp_path)
    (tmp_path / "text").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"it is not UTF-8 at byte 0$"):
        data.prepare(url, "chars", tmp_path)


def test_a_cache_that_cannot_be_written(group, config, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot keep the tokens in .*file.*: make room, or"):
        data.load(config(cache=str(tmp_path / "file")))


def test_a_cache_that_is_damaged(group, config):
    args = config()
    path = data.prepare(args.data, args.tokenizer, args.cache)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"\.tokens is damaged: delete it, and it is made anew$"):
        data.load(args)
