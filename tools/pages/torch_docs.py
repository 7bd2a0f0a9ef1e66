"""Where PyTorch's documentation describes a name, by rules: neither torch nor its site is asked.

The address has the version of the installed torch, not `stable`, for two reasons: the scripts ran
with this version, and a page of `stable` only forwards to that of the newest one, which may have
moved meanwhile.
"""

import re
from importlib.metadata import version

from tools.errors import UserError

SITE = "https://docs.pytorch.org/docs"
# The first entry that is the name, or a package around it, says which page. {} is the name.
PAGES = {
    "torch.amp.GradScaler": "amp.html#gradient-scaling",  # described in prose only
    "torch.amp": "amp.html#{}",
    "torch.autocast": "amp.html#{}",
    "torch.autograd.Function": "autograd.html#{}",
    "torch.autograd.graph": "autograd.html#{}",
    "torch.bfloat16": "tensor_attributes.html",
    "torch.device": "tensor_attributes.html#{}",
    "torch.distributed.algorithms.Join": "distributed.algorithms.join.html#{}",
    "torch.distributed.algorithms.ddp_comm_hooks": "ddp_comm_hooks.html#{}",
    "torch.distributed.checkpoint": "distributed.checkpoint.html",
    "torch.distributed.elastic.multiprocessing.errors": "elastic/errors.html#{}",
    "torch.distributed.fsdp.fully_shard": "distributed.fsdp.fully_shard.html#{}",
    "torch.distributed.get_node_local_rank": "distributed.html",  # it has no entry there
    "torch.distributed.optim": "distributed.optim.html#{}",
    "torch.distributed.pipelining": "distributed.pipelining.html",
    "torch.distributed.run": "elastic/run.html",
    "torch.distributed.tensor.parallel": "distributed.tensor.parallel.html",
    "torch.distributed.tensor": "distributed.tensor.html",
    "torch.distributed": "distributed.html#{}",
    "torch.multiprocessing.spawn": "multiprocessing.html#torch.multiprocessing.spawn.spawn",
    "torch.nn.Parameter": "generated/torch.nn.parameter.Parameter.html",
    "torch.profiler.schedule": "profiler.html#torch.profiler.profiler.schedule",
    "torch.profiler": "profiler.html",
    "torch.utils.checkpoint.checkpoint": "checkpoint.html#{}",
    "torch.utils.checkpoint": "checkpoint.html",
    "torch.utils.data.DistributedSampler": (
        "data.html#torch.utils.data.distributed.DistributedSampler"
    ),
    "torch.utils.data": "data.html#{}",
    "torch.utils": "utils.html",
    "torch": "generated/{}.html",
}


def address(name: str) -> str:
    """The page of a name, such as `torch.nn.Linear`."""
    if not re.fullmatch(r"torch(\.\w+)+", name):
        raise UserError(f"{name!r} is no name of torch: write it in full, as torch.nn.Linear")
    owner = name.rpartition(".")[0]
    # A method is on the page of its class. Those of a tensor have their own pages.
    if owner != "torch.Tensor" and owner.rpartition(".")[2][0].isupper():
        return f"{address(owner).partition('#')[0]}#{name}"
    entry = next(known for known in PAGES if f"{name}.".startswith(f"{known}."))
    release = ".".join(version("torch").split(".")[:2])
    return f"{SITE}/{release}/{PAGES[entry].format(name)}"


def split(text: str) -> tuple[str, str]:
    """What to show and the name: of `text <name>`, or of a name, which shows its last part."""
    if found := re.fullmatch(r"(.+?)\s*<(.+)>", text, re.DOTALL):
        return found[1], found[2]
    return text.rpartition(".")[2], text
