"""Where the text comes from, and the one line if it is unreadable or its tokens cannot be saved."""

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


def test_a_cache_that_cannot_be_written(group, config, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot keep the tokens in .*file.*: make room, or"):
        data.load(config(cache=str(tmp_path / "file")))
    assert [*tmp_path.iterdir()] == [tmp_path / "file"]
