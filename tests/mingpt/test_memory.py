"""What a step frees is there for the next one: no page faults."""

import itertools
import os
import platform
import statistics
import subprocess
import sys

import pytest

from tests.processes import ROOT

STEPS = """
import resource, sys, torch
from mingpt import memory
from mingpt.model import GPT, GPTConfig
if sys.argv[1] == "keep":
    memory.keep_freed()
model = GPT(GPTConfig.preset("gpt-micro", vocab_size=65, block_size=64))
tokens = torch.zeros(12, 64, dtype=torch.long)
for step in range(20):
    model.zero_grad()
    model(tokens).logsumexp(-1).sum().backward()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep it")
def test_a_step_takes_the_memory_of_the_one_before():
    faults, env = {}, {**os.environ, "OMP_NUM_THREADS": "1"}
    for how in ("keep", "give back"):
        words = [sys.executable, "-c", STEPS, how]
        ran = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, check=True)
        so_far = [int(line) for line in ran.stdout.split()][-11:]
        # A step now and then touches something for the first time: the median one does not.
        faults[how] = statistics.median(b - a for a, b in itertools.pairwise(so_far))
    assert faults["keep"] < faults["give back"] / 10, faults
