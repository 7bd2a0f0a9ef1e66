"""Run scripts the wrong way, and collect what they print.

Starting a script takes long because of `import torch`. `python` below saves this time: a helper has
imported torch, and forks a process per script. Everything else is as usual: the script's own
`__main__`, command line, environment, exit status and exception hook.
"""

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.processes import LESSONS, ROOT
from tools import processes
from tools.errors import UserError
from tools.processes import MARK, environment

# torchrun's variables for a single process; port 0 means any free port.
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
ALONE |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
FOUR = {**ALONE, "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}
RESTARTS_ONCE = ("--standalone", "--max-restarts=1")

HELPER = """
import json, os, runpy, sys
import torch, torch._dynamo, torch.distributed, torch.multiprocessing
for line in sys.stdin:
    case = json.loads(line)
    pid = os.fork()
    if pid == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit()
for stream, file in enumerate(case["streams"]):
    os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), stream)
os.chdir(case["cwd"])
os.environ.clear()
os.environ.update(case["env"])
sys.argv = case["words"]
sys.path[0] = os.path.dirname(sys.argv[0])
exec(case["before"])
runpy.run_path(sys.argv[0], run_name="__main__")
"""

# Make torch report an accelerator; fake nothing else.
FAKE = """
torch.version.cuda, torch.version.hip = {cuda!r}, None
torch.accelerator.is_available = lambda: {count} > 0
torch.accelerator.current_accelerator = lambda check_available=False: (
    torch.device({kind!r}) if {count} > 0 or not check_available else None
)
torch.accelerator.device_count = lambda: {count}
torch._C._get_accelerator = lambda: torch.device({kind!r} if {count} > 0 else "cpu")
"""


def fake(kind="cuda", count=0, cuda=None):
    """Code that gives a script `count` fake accelerators.

    It fakes four answers of torch: the number and kind of accelerators, whether there is one, and
    the CUDA version that torch is built for.
    """
    return FAKE.format(kind=kind, count=count, cuda=cuda)


@cache
def _helper():
    env = environment(OMP_NUM_THREADS="1")
    words = [sys.executable, "-c", HELPER]
    return processes.Process(words, env=env, stdin=subprocess.PIPE, stderr=None)


def python(script, *args, cwd, env=(), before=""):
    """Run `python SCRIPT ARGS` to its end. A lesson's name may replace its file.

    The process runs the code in `before` first.
    """
    script = ROOT / LESSONS[script].file if isinstance(script, str) else script
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        helper = _helper()
        case = {
            "words": [str(script), *map(str, args)],
            "cwd": str(cwd),
            "env": environment(**{"OMP_NUM_THREADS": "1", MARK: helper.mark, **dict(env)}),
            "streams": [os.devnull, str(out), str(err)],
            "before": before,
        }
        number = len(helper.lines)
        helper.process.stdin.write(json.dumps(case) + "\n")
        helper.process.stdin.flush()
        try:
            helper.wait_for("", since=number)
        except UserError as error:
            helper.kill()
            _helper.cache_clear()
            raise AssertionError(f"{error}\n{out.read_text()}{err.read_text()}") from None
        status = int(helper.lines[number])
        return subprocess.CompletedProcess(case["words"], status, out.read_text(), err.read_text())


def check_said_once(process, lesson, says):
    """One rank prints our line, once over all restarts, and only torchrun shows tracebacks."""
    lines = process.err.splitlines()
    ours = [number for number, line in enumerate(lines) if line.startswith(f"{lesson}.py: ")]
    assert [lines[number] for number in ours] == [f"{lesson}.py: {says}"], process.err
    traces = [number for number, line in enumerate(lines) if line.startswith("Traceback")]
    for number in traces:
        assert number > ours[0] and "distributed/run.py" in "".join(lines[number : number + 12])
    assert not any(line.startswith("[rank") for line in lines)
