"""Which definition encloses each line."""

import pytest

from tools.errors import UserError
from tools.series.source import Source

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


def test_a_script_that_is_no_python_is_one_line():
    with pytest.raises(UserError, match=r"^a.py:2: not valid Python: '\(' was never closed$"):
        Source.parse("a.py", "\nx = (\n")
