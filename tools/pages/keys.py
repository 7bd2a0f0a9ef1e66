"""The key of shell lines: a hash of the lines and of the project's files that they depend on.

    Keys(root).of(["python multigpu.py 5 1"])

Of a Python file its syntax tree counts, without comments and docstrings. Of `tools.series run
multigpu@3` it is the tree of that stage. The rest of tools/ runs and watches commands but decides
nothing that they print, so no key depends on it. Other files count byte for byte, and so does what
a command prints or compares as text (`diff a.py b.py`, `--help`). This needs no torch.
"""

import ast
import contextlib
import functools
import hashlib
import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from tools import series
from tools.errors import UserError
from tools.series import stages

STAGE = re.compile(r"-m +tools\.series +(run|show|observe|diff)((?: +[\w@.-]+)*)(?= *(\S?))")
SERIES = re.compile(r"-m +tools\.series +(?!run|show|observe|diff)\w+")
AS_TEXT = re.compile(r"\b(?:cat|diff|cmp|wc|nl)((?: +[\w./-]+)+)")
ENGINE = ("tools/*.py", "tools/series/*", "tools/pages/*", "tools/quick/*")


class Keys:
    """The keys of commands in the tree as it is now. It caches what it reads.

    If `whole`, the dependencies are all files that the commands need to run.
    """

    def __init__(self, root: Path, whole: bool = False):
        self.root, self.whole = root, whole
        is_own = series.own(root)
        self._counts = functools.cache(
            lambda file: is_own(file) and (whole or not self._is_engine(file))
        )
        self._read = functools.cache(self._read)
        self._parsed = functools.cache(self._parsed)

    def of(self, lines: Iterable[str]) -> str:
        facts = [*lines]
        text = "\n".join(facts)
        as_text = self._as_text(text)
        shows_docstrings = "--help" in text
        for file in self.dependencies(facts):
            is_text = shows_docstrings or file in as_text
            found = _hash(file.read_bytes()) if is_text else self._read(file)[0]
            facts += [str(file.relative_to(self.root)), found]
        for stage, is_text in self._stages(text):
            source = stage.source.text
            found = self._parsed(source, self.root / stage.lesson.file)[0]
            facts += [stage.run, _hash(source.encode()) if is_text else found]
        return _hash("\0".join(facts).encode())[:16]

    def dependencies(self, lines: Iterable[str]) -> list[Path]:
        """The project's files that may change what the lines print; stages are no files."""
        text = "\n".join(lines)
        found = {*filter(self._counts, self._as_text(text))}
        waiting = [*filter(self._counts, self._named(AS_TEXT.sub(" ", text)))]
        done = set()
        for stage, _ in self._stages(text):
            waiting += self._parsed(stage.source.text, self.root / stage.lesson.file)[1]
        while waiting:
            file = waiting.pop()
            if file not in done:
                done.add(file)
                waiting += self._read(file)[1]
        return sorted(found | done)

    def _as_text(self, text) -> set[Path]:
        return {self.root / word for found in AS_TEXT.findall(text) for word in found.split()}

    def _is_engine(self, file):
        return any(file.relative_to(self.root).match(pattern) for pattern in ENGINE)

    @cached_property
    def _lessons(self):
        return series.load_all(self.root)

    def _stages(self, text) -> Iterator[tuple[stages.Stage, bool]]:
        """The stages that a text runs or shows, and whether the page shows their text."""
        if "tools.series run $" in text:  # in a loop
            names = re.findall(r"\w+@\d+", text)
            text += "".join(f"; -m tools.series run {name}" for name in names)
        for command, words, following in STAGE.findall(text):
            names = [word for word in words.split() if not word.startswith("-")]
            for name in names if command == "diff" else names[:1]:
                with contextlib.suppress(UserError):  # a file, or a stage that is not there
                    stage = stages.find(self._lessons, name)
                    whole = command in ("observe", "diff")
                    found = stages.of(stage.lesson) if whole else [stage]
                    is_text = command == "diff" or (command == "show" and following not in "|>")
                    yield from ((one, is_text) for one in found)

    def _named(self, text) -> Iterator[Path]:
        """The paths that a text may mean."""
        yield from (self.root / word for word in re.findall(r"[\w./-]+", text) if word[0] != "/")
        for module in re.findall(r"-m +([\w.]+)", text):
            folder = self.root / "doctor" if module.startswith("ddp_doctor") else self.root
            path = folder / module.replace(".", "/")
            yield from (path.with_suffix(".py"), path / "__init__.py", path / "__main__.py")
            if self.whole or module in ("workshop", "ddp_doctor"):  # reads more than it imports
                yield from path.rglob("*.*")
        if re.search("-m +workshop", text) or SERIES.search(text):
            yield from self._of_series("")
        elif self.whole and "tools.series" in text:
            yield from self._of_series(text)

    def _of_series(self, text):
        """The lessons; of those of beyond/ and docs/ only what a text names, if there is one."""
        yield from (self.root / "lessons.toml", *self.root.glob("*.py"))
        yield from self.root.glob("mingpt/*.py")
        yield from self.root.glob("parallel/*.py")
        yield from (one for one in self.root.glob("beyond/*.py") if not text or one.stem in text)
        for chain in self.root.glob("docs/*/lessons.toml"):
            files = list(chain.parent.glob("*.*"))
            yield from files if any(file.stem in text for file in files) else []

    def _read(self, file) -> tuple[str, list[Path]]:
        """The hash of a file, and the files that it may need."""
        content = file.read_bytes()
        if file.suffix == ".py":
            try:
                return self._parsed(content, file)
            except (SyntaxError, ValueError):  # no Python yet, so its bytes count
                pass
        is_shell = file.suffix == ".sh"  # its comments say what it needs
        named = self._named(content.decode(errors="replace")) if is_shell else []
        return _hash(content), [*filter(self._counts, named)]

    def _parsed(self, source, file) -> tuple[str, list[Path]]:
        """The hash of a script's syntax tree, and the files that it may import or start."""
        tree = ast.parse(source)
        text = code(tree)
        named = (self.root / name for name in re.findall(r"\blaunch/\w+\.\w+", text))
        needed = {*filter(self._counts, [*self._imported(tree, file), *named])}
        return _hash(text.encode()), sorted(needed)

    def _imported(self, tree, file) -> Iterator[Path]:
        """The paths that the imports of a script may mean, with their parent packages."""
        for node in ast.walk(tree):
            folders, names = [file.parent, self.root, self.root / "doctor"], []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                folders = [file.parents[node.level - 1]] if node.level else folders
                names = [f"{node.module or ''}.{alias.name}".strip(".") for alias in node.names]
            for folder, parts in itertools.product(folders, [name.split(".") for name in names]):
                for end in range(1, len(parts) + 1):
                    place = folder.joinpath(*parts[:end])
                    yield from (place.with_suffix(".py"), place / "__init__.py")


def code(tree: ast.Module) -> str:
    """A syntax tree as text, without docstrings: the same on each version of Python."""
    scopes = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, scopes) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        if isinstance(node, ast.JoinedStr):  # 3.12.3 adds empty strings to some
            node.values = [part for part in node.values if part.value != ""]
    shown = {"show_empty": True} if sys.version_info >= (3, 13) else {}
    return ast.dump(tree, **shown).replace(", type_params=[]", "")  # new in 3.12


def _hash(content: bytes):
    return hashlib.sha256(content).hexdigest()
