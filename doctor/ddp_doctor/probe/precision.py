"""Watch mixed precision: in which order gradients are unscaled and clipped."""

import _ddp_doctor as recorder
import torch
from _ddp_doctor import around

_scaler = None  # the one that scaled the loss of this step
_unscaled = False


def watch():
    scaler = torch.amp.GradScaler
    scaler.scale = around(scaler.scale, _begin_scale)
    scaler.unscale_ = around(scaler.unscale_, after=_end_unscale)
    scaler.step = _outside(scaler.step)
    clip = torch.nn.utils.clip_grad
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        wrapped = around(getattr(clip, name), _note_clip)
        for module in (clip, torch.nn.utils):
            setattr(module, name, wrapped)


def _outside(step):
    """`around` would hide the collectives of the optimizer's step, which this calls."""

    def wrapped(self, *args, **kwargs):
        global _scaler
        _scaler = None
        recorder.counts["scaler"] = int(self.is_enabled())
        return step(self, *args, **kwargs)

    return wrapped


def _begin_scale(self, outputs):
    global _scaler, _unscaled
    if self.is_enabled():
        _scaler, _unscaled = self, False


def _end_unscale(self, optimizer):
    global _unscaled
    _unscaled = True


@recorder.guarded
def _note_clip(*_, **__):
    if _scaler and not _unscaled and recorder.count("clipped before unscale") == 1:
        recorder.fact("clipped", scale=_scaler.get_scale(), where=recorder.where())
