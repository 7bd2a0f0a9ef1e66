"""While torch comes in, nobody looks for garbage; who had the collector off keeps it off."""

import json
import subprocess
import sys

import pytest

from tests.processes import ROOT

CODE = """import gc, json, sys
getattr(gc, sys.argv[1])()
gc.collect()
before = gc.get_stats()[1]["collections"]
import mingpt.main
mingpt.main.guard.prepare_for_group()
found = gc.get_stats()[1]["collections"] - before, gc.isenabled(), "torch._dynamo" in sys.modules
print(json.dumps(found))
"""


@pytest.mark.parametrize("state", ["enable", "disable"])
def test_torch_comes_in_while_the_collector_rests(state):
    words = [sys.executable, "-c", CODE, state]
    out = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=120).stdout
    collections, collecting, dynamo = json.loads(out)
    assert dynamo and collecting == (state == "enable")
    assert collections < 20  # of the middle generation; some 80 while torch is imported
