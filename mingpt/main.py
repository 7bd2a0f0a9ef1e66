"""The command line of the trainer: a preset, then options that override its fields.

    torchrun --standalone --nproc_per_node=2 -m mingpt.main gpu --total_steps 1000

The default preset is `laptop`.
"""

import os
import shutil
import sys
from dataclasses import replace
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

import torch

import guard
import utils
from guard import UserError
from mingpt import cpu, trainer
from mingpt.cli import parse
from mingpt.config import PRESETS, Config


def main(script=trainer):
    """Train by `script`: the GPT's trainer, or a module derived from it."""
    guard.install_excepthook()
    args = sys.argv[1:]
    name = args.pop(0) if args and not args[0].startswith("-") else "laptop"
    if name not in PRESETS:
        nearest = get_close_matches(name.lower(), PRESETS, 1, 0)[0]
        raise UserError(f"no preset {name}, but {', '.join(PRESETS)}: the nearest is {nearest}")
    about = f"{script.__doc__}\nA preset may be named first: {', '.join(PRESETS)}."
    preset = PRESETS[name]
    if script is not trainer:
        preset = replace(preset, checkpoint_path=f"{Path(script.__file__).stem}.pt")
    args = parse(Config, args, preset, about)
    guard.check_launcher(script.__doc__, utils.num_gpus())
    guard.check_path(args.checkpoint_path)
    utils.say_if_no_gpu()
    script.worker(ready(args))


def ready(args):
    """`args`, completed for this machine. Raises UserError if a package or compiler is missing."""
    args.accumulation(int(os.environ["WORLD_SIZE"]))
    packages = {
        "tensorboard": args.tensorboard,
        "tiktoken": args.tokenizer == "gpt2",
        "safetensors": args.init_from,
    }
    for package, wanted in packages.items():
        if wanted and not find_spec(package):
            raise UserError(f"this needs the package {package}: pip install {package}")
    # Before any other CUDA call, or every rank would create a context on GPU 0.
    gpu = utils.set_device(int(os.environ["LOCAL_RANK"]))
    if args.precision == "auto":
        half = gpu is not None and torch.get_device_module().is_bf16_supported(False)  # in hardware
        args = replace(args, precision="bf16" if half else "fp32")
    if args.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    if gpu is None:
        cpu.speed_up()
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if args.compile and gpu is None and os.name == "posix" and not shutil.which(compiler):
        raise UserError(
            f"to compile for the CPU needs a C++ compiler, and there is no {compiler}: install one "
            "(apt install g++), or pass --no_compile"
        )
    return args


if __name__ == "__main__":
    main()
