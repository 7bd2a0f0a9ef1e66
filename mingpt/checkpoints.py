"""Checkpoints of a GPT: written while training continues, checked when a run resumes."""

import gc
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import torch
import torch.distributed as dist

import guard
import utils
from guard import AWAY, UserError

# The `Products` of cpu.py: picks a library, since their results differ in the last bits. Or None.
kernels = None


class CheckpointFile:
    """The checkpoint of a run: read once at its start, then written by a thread.

    The file also describes `model`, a GPT, and the text of `loader`.
    """

    def __init__(self, args, model, loader):
        self.path, self.args, self.shape = args.checkpoint_path, args, model.config
        self.about = {"model_config": asdict(model.config), "text": loader.dataset.about}
        self._thread = ThreadPoolExecutor(1)
        guard.before_exit.append(self._thread.shutdown)  # completes a save in progress
        self._last = None
        if args.compile:
            # A compiled model is in a reference cycle that keeps DDP's process group alive. Collect
            # it when the trainer, which owns this object and the model, is gone.
            weakref.finalize(self, gc.collect)

    def save(self, checkpoint):
        """Copy `checkpoint` to host memory, and write it while training continues.

        First waits until the last save is on the disk, so two are never written at once. Raises
        UserError if that save failed.
        """
        self.wait()
        checkpoint = _to_host({**checkpoint, **self.about}, {})
        self._last = self._thread.submit(utils.save_checkpoint, checkpoint, self.path)

    def wait(self):
        """Wait until the last save is on the disk. Raises UserError if it failed."""
        if self._last:
            self._last.result()

    def read(self):
        """The checkpoint to resume from; `{"steps_run": 0}` if there is no file.

        Every rank must call this. Only the first process of a node reads the weights, which the
        trainer then broadcasts; the others return `{"steps_run": 0}`. Every rank raises UserError
        for the checkpoint of another model or text, because this run would overwrite it.
        """
        checkpoint = self._read()
        if kernels:
            self._choose_kernels(checkpoint)
        return checkpoint

    def _read(self):
        if not os.path.lexists(self.path):
            return {"steps_run": 0}
        first = int(os.environ["LOCAL_RANK"]) == 0
        checkpoint = load(self.path, mmap=not first)
        old, new = checkpoint["text"], self.about["text"]
        if old["kind"] != new["kind"]:
            raise UserError(
                f"{self.path} has tokenizer {old['kind']}, but you asked for {new['kind']}: "
                f"ask for {old['kind']}, {AWAY}"
            )
        if old["key"] != new["key"]:
            raise UserError(f"{self.path} was trained on another text: give that as --data, {AWAY}")
        old, new = checkpoint["model_config"], self.about["model_config"]
        for name, value in new.items():
            if old[name] != value and name != "dropout":
                raise UserError(
                    f"{self.path} has {name} {old[name]}, but you asked for {value}: ask for "
                    f"{old[name]}, {AWAY}"
                )
        return self._with_options(checkpoint) if first else {"steps_run": 0}

    def _choose_kernels(self, checkpoint):
        """Every rank uses the library of the newest checkpoint; without one, rank 0's choice.

        Otherwise a resumed run would not end with the same bits.
        """
        found = [None] * dist.get_world_size()
        # Checkpoints from a GPU name no kernels: a run that resumes one on a CPU uses torch's.
        known = checkpoint.get("kernels", "torch") if checkpoint["steps_run"] else None
        dist.all_gather_object(found, (checkpoint["steps_run"], known))
        _, known = max(found, key=lambda one: one[0])
        choice = [kernels.choose(self.shape, known) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(choice)
        kernels.use(choice[0])
        self.about["kernels"] = choice[0]

    def _with_options(self, checkpoint):
        """`checkpoint` with this run's options in place of the saved run's."""
        if "optimizer" in checkpoint:
            groups = checkpoint["optimizer"]["param_groups"]
            groups[0]["weight_decay"] = self.args.weight_decay  # of the matrices
            for group in groups:
                group.update(self.args.adamw)
        # A run without fp16 saves an empty scaler state, which load_state_dict refuses.
        scaler = checkpoint.get("scaler") or torch.amp.GradScaler("cpu").state_dict()
        return {**checkpoint, "scaler": scaler}


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


def load(path, **options):
    """The checkpoint of `mingpt` at `path`, in host memory. Raises UserError for any other file.

    `options` are those of torch.load.
    """
    if not os.path.lexists(path):
        raise UserError(f"no checkpoint {path}: train one, or pass its --checkpoint_path")
    checkpoint = utils.read(path, **options)
    names = {"steps_run", "model_config", "text"}
    if not (isinstance(checkpoint, dict) and names <= checkpoint.keys()):
        raise UserError(f"{path} is not a checkpoint of mingpt: {AWAY}")
    guard.check_checkpoint(
        checkpoint, path, model=dict, steps_run=int, model_config=dict, text=dict
    )
    return checkpoint
