"""Copy the scripts of a notebook into a new folder, for one command, and print its name."""

import shutil
import tempfile
from pathlib import Path


def fresh():
    Path("runs").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir="runs"))
    patterns = "[!.]*.py", "lessons.toml", "LICENSE"
    for file in [file for pattern in patterns for file in Path(".").glob(pattern)]:
        shutil.copy(file, folder)
    for name in ("beyond", "docs", "doctor", "launch", "mingpt", "parallel", "tools", "workshop"):
        if Path(name).is_dir():
            made = ["_build", "series"] if name == "docs" else []
            ignored = shutil.ignore_patterns(".*", "__pycache__", *made)
            shutil.copytree(name, folder / name, ignore=ignored)
    return folder


if __name__ == "__main__":
    print(fresh())
