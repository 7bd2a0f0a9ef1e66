"""Checkpoints of a GPT: written while training continues, checked when a run resumes."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import torch
import torch.distributed as dist

import guard
import utils
from guard import AWAY, UserError
from mingpt import tokens
from mingpt.model import GPT, GPTConfig
from mingpt.once import run_once_per_node

# The `Products` of cpu.py: picks a library, since their results differ in the last bits. Or None.
kernels = None


class CheckpointFile:
    """The checkpoint of a run: read once at its start, then written by a thread."""

    def __init__(self, args, model, loader):
        self.path, self.shape = args.checkpoint_path, model.config
        self.about = {"model_config": asdict(model.config), "text": loader.dataset.about}
        optimizer = torch.optim.AdamW(model.parameter_groups(args.weight_decay), **args.adamw)
        self.groups = optimizer.state_dict()["param_groups"]
        # One thread per operation. Otherwise libgomp sees two teams on the cores, lets its threads
        # sleep instead of spin, and training is half as fast from the first save to the end.
        self._thread = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,))
        guard.before_exit.append(self._thread.shutdown)  # completes a save in progress
        self._last = None
        if args.compile:
            # A compiled model is in a reference cycle that keeps DDP's process group alive. Collect
            # it when the trainer, which owns this object and the model, is gone.
            weakref.finalize(self, gc.collect)

    def save(self, checkpoint):
        """Wait for the last save; copy `checkpoint` to host memory; let the thread write it."""
        self.wait()
        checkpoint = _to_host({**checkpoint, **self.about}, {})
        self._last = self._thread.submit(utils.save_checkpoint, checkpoint, self.path)

    def wait(self):
        """Wait until the last save is on the disk. Raises UserError if it failed."""
        if self._last:
            self._last.result()

    def read(self):
        """The checkpoint to resume from; `{"steps_run": 0}` if there is no file.

        Every rank must call this, and raises UserError for the checkpoint of another model or text,
        which this run would overwrite. Only one process per node reads the file: the trainer
        broadcasts the weights.
        """
        found = [{"steps_run": 0}]
        run_once_per_node(lambda: found.append(self._read()))
        if kernels:
            self._choose_kernels(found[-1])
        return found[-1]

    def _read(self):
        """The checkpoint, with this run's options in place of the saved run's."""
        checkpoint = load(self.path)
        if not checkpoint["steps_run"]:
            return checkpoint
        old, new = (
            {"tokenizer": one["text"]["kind"], "text": one["text"], **one["model_config"]}
            for one in (checkpoint, self.about)
        )
        changed = [name for name in new if old.get(name) != new[name] and name != "dropout"]
        if "text" in changed and "tokenizer" not in changed:
            raise UserError(f"{self.path} was trained on another text: give that as --data, {AWAY}")
        for name in changed:
            has = f"{self.path} has {name} {old.get(name)}, but you asked for {new[name]}"
            raise UserError(f"{has}: ask for {old.get(name)}, {AWAY}")
        checkpoint["optimizer"]["param_groups"] = self.groups
        # A run without fp16 saves an empty scaler state, which load_state_dict refuses.
        scaler = checkpoint.get("scaler") or torch.amp.GradScaler("cpu").state_dict()
        return {**checkpoint, "scaler": scaler}

    def _choose_kernels(self, checkpoint):
        """Use the newest checkpoint's library, else rank 0's choice: the last bits depend on it."""
        found = [None] * dist.get_world_size()
        # Checkpoints from a GPU name no kernels: a run that resumes one on a CPU uses torch's.
        known = checkpoint.get("kernels", "torch") if checkpoint["steps_run"] else None
        dist.all_gather_object(found, (checkpoint["steps_run"], known))
        _, known = max(found, key=lambda one: one[0])
        choice = [kernels.choose(self.shape, known) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(choice)
        kernels.use(choice[0])
        self.about["kernels"] = choice[0]


def _to_host(part, done):
    """A copy in host memory that shares nothing with `part`; tied tensors stay tied."""
    if isinstance(part, torch.Tensor):
        place = (part.data_ptr(), part.shape, part.stride(), part.dtype, part.device)
        if place not in done:
            done[place] = part.detach().to("cpu", copy=True)
        return done[place]
    if isinstance(part, dict):
        return {name: _to_host(value, done) for name, value in part.items()}
    if isinstance(part, list):
        return [_to_host(value, done) for value in part]
    return part


def rng_state(device):
    """The states of the random generators that dropout uses in this process."""
    states = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        states[device.type] = torch.get_device_module(device).get_rng_state()
    return states


def set_rng_state(states, device):
    """Restore this rank's `rng_state`. A rank without a saved state keeps its own."""
    rank = dist.get_rank()
    if rank < len(states):
        torch.set_rng_state(states[rank]["cpu"])
        if device.type in states[rank] and device.type != "cpu":
            torch.get_device_module(device).set_rng_state(states[rank][device.type])


def load(path):
    """The checkpoint of `mingpt` at `path`, as `utils.read_checkpoint` returns it."""
    return utils.read_checkpoint(path, "step", _check)


def _check(checkpoint):
    """Raise an exception for what differs from what a run of its model would save."""
    config, weights = GPTConfig(**checkpoint["model_config"]), len(checkpoint["model"])
    if config.n_layer > weights:  # to build these layers might take hours
        raise ValueError(f"n_layer is {config.n_layer}, but there are {weights} weights")
    with torch.device("meta"):
        model = GPT(config)
    count = len([*model.parameters()])  # before the tie is gone
    model.load_state_dict(checkpoint["model"], assign=True)
    if any(weight.dtype != torch.float32 for weight in model.parameters()):
        raise ValueError("not all weights are float32")
    states = checkpoint["optimizer"]["state"].values()
    steps = {(one["step"].item(), one["step"].layout) for one in states}
    if states and ((len(states), len(steps)) != (count, 1) or min(steps)[0] < 0):
        raise ValueError(f"the optimizer took {[*steps]} steps with {len(states)} weights")
    text, scores = checkpoint["text"], config.vocab_size
    kinds = 50257 if text["kind"] == "gpt2" else len(tokens.restore(text))  # no download
    if kinds != scores:
        raise ValueError(f"{kinds} kinds of tokens for {scores} scores")
    for rank in range(max(1, len(checkpoint["rng"]))):
        torch.Generator().set_state(checkpoint["rng"][rank]["cpu"])
    if checkpoint.get("kernels") not in (None, "torch", "onednn"):
        raise ValueError(f"kernels is {checkpoint['kernels']}")
    if not all(value >= 0 for value in checkpoint.get("scaler", {}).values()):
        raise ValueError(f"the scaler is {checkpoint['scaler']}")
