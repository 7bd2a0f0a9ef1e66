"""Which definition encloses each line."""

import pytest

from tools.errors import UserError
from tools.series import Source

SCRIPT = '''\
#!/usr/bin/env python         | docstring
"""What it does.              | docstring
                              | docstring
    python script.py          | docstring
"""                           | docstring
                              | imports
import os  # why              | imports
from sys import (             | imports
    argv,                     | imports
)                             | imports
                              | module
LIMIT = 3                     | module
"a string, no docstring"      | module
if os.name:                   | module
    def hidden():             | module
        pass                  | module
                              | first
                              | first
# About the first.            | first
                              | first
@os.cached                    | first
# About its decorator.        | first
@os.other(                    | first
    1                         | first
)                             | first
def first():                  | first
    def inner():              | first
        pass                  | first
                              | first
    return inner              | first
    # It ends in a comment.   | first
                              | Trainer
class Trainer(                | Trainer
    object                    | Trainer
):                            | Trainer
    # About the batch.        | Trainer.run
    async def run(self):      | Trainer.run
        pass                  | Trainer.run
        # deep                | Trainer.run
                              | Trainer
    # At the level of methods | Trainer
    step = """                | Trainer
# no comment"""               | Trainer
    def go(self):             | Trainer.go
        pass                  | Trainer.go
    class Inner:              | Trainer.Inner
        def go(self):         | Trainer.Inner.go
            pass              | Trainer.Inner.go
    # About the class.        | Trainer
                              | __main__
if __name__ == "__main__":    | __main__
    first()                   | __main__
'''


def test_each_line_has_the_scope_of_its_definition():
    pairs = [line.rsplit("|", 1) for line in SCRIPT.splitlines()]
    lines, expected = [code.rstrip() for code, _ in pairs], [scope.strip() for _, scope in pairs]
    source = Source("script.py", "\n".join(lines) + "\n\n# end\n")
    found = list(zip(source.lines, source.scopes, strict=True))
    assert found == [*zip(lines, expected, strict=True), ("", "__main__"), ("# end", "__main__")]


def test_definitions_are_listed_in_order_with_the_line_of_their_def():
    text = "@cache\ndef f(): pass\nclass C:\n    x = 1\n    def g(self): pass\n"
    source = Source("a.py", text + "if __name__ == '__main__':\n    f()\n")
    assert source.definitions == [("f", 2), ("C", 3), ("C.g", 5), ("__main__", 6)]


def test_a_file_without_statements_is_all_module():
    assert Source("a.py", "").scopes == []
    assert Source("a.py", "\n# nothing\n").scopes == ["module", "module"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\nx = (\n", "a.py:2: not valid Python: '(' was never closed"),
        (b"\n\xff\n", "a.py:1: cannot be read: 'utf-8' codec can't decode"),
        (None, "a.py:1: no such file: write it, or unlist it in lessons.toml"),
    ],
)
def test_a_script_that_cannot_be_read_is_one_line(tmp_path, content, message):
    if content is not None:
        (tmp_path / "a.py").write_bytes(content)
    with pytest.raises(UserError) as caught:
        Source.read(tmp_path, "a.py")
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
