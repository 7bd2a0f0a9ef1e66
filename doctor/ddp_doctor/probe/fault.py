"""What a test of a restart needs: one rank is killed, some steps after a checkpoint."""

import json
import os
import signal

import _ddp_doctor as recorder
import torch.distributed as dist
from torch.optim import optimizer as hooks

_fault = json.loads(os.environ.get("DOCTOR_FAULT", "{}"))


def watch():
    """The hook of optimizers.py was registered before, so it has counted the step."""
    if _fault and recorder.attempt() == 0:
        hooks.register_optimizer_step_post_hook(_fail_if_due)


def _fail_if_due(optimizer, args, kwargs):
    rank = dist.get_rank() if dist.is_initialized() else 0
    if recorder.counts.get("step") == _fault["step"] and rank == _fault["rank"]:
        recorder.fact("fault")
        os.kill(os.getpid(), signal.SIGKILL)
