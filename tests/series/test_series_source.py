"""Which definition encloses each line."""

import pytest

from tools.errors import UserError
from tools.series import Source

SCRIPT = '''\
#!/usr/bin/env python         | docstring
"""What it does.              | docstring
"""                           | docstring
                              | imports
import os  # why              | imports
                              | module
LIMIT = 3                     | module
                              | first
                              | first
# About the first.            | first
                              | first
@os.cached                    | first
# About its decorator.        | first
def first():                  | first
    def inner():              | first
        pass                  | first
    # It ends in a comment.   | first
                              | Trainer
class Trainer:                | Trainer
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


def test_a_file_without_statements_is_all_module():
    assert Source("a.py", "").scopes == []
    assert Source("a.py", "\n# nothing\n").scopes == ["module", "module"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\nx = (\n", "a.py:2: not valid Python: '(' was never closed"),
        (b"\n\xff\n", "a.py:1: cannot be read: 'utf-8' codec can't decode"),
        (None, "a.py:1: cannot be read: [Errno 2] No such file"),
    ],
)
def test_a_script_that_cannot_be_read_is_one_line(tmp_path, content, message):
    if content is not None:
        (tmp_path / "a.py").write_bytes(content)
    with pytest.raises(UserError) as caught:
        Source.read(tmp_path, "a.py")
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
