"""Watch mixed precision: in which order gradients are unscaled and clipped."""

import math

import _ddp_doctor as recorder
import torch

CLIPS = {"clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"}

_scaler = None  # the one that scaled the loss of this step, until it unscales the gradients


def watch():
    scaler = torch.amp.GradScaler
    recorder.watch(scaler, "scale", _begin_scale)
    recorder.watch(scaler, "unscale_", after=_end_unscale)
    recorder.watch(scaler, "step", _begin_step, hides=False)  # not the optimizer's collectives
    watch_clipping(_note_clip, then=_note_norm)


def watch_clipping(note, **options):
    """`clip_grads_with_norm_` is not in older versions of torch, and has another name inside."""
    for name in CLIPS & vars(torch.nn.utils).keys():
        recorder.watch(torch.nn.utils, name, note, **options)
        setattr(torch.nn.utils.clip_grad, name, getattr(torch.nn.utils, name))


def _begin_step(self, *_, **__):
    _end_unscale()
    recorder.counts["scaler"] = int(self.is_enabled())


def _begin_scale(self, outputs):
    global _scaler
    if self.is_enabled():
        _scaler = self


def _end_unscale(*_, **__):
    global _scaler
    _scaler = None


@recorder.guarded
def _note_clip(*_, **__):
    if _scaler and recorder.count("clipped before unscale") == 1:
        recorder.fact("clipped", scale=_scaler.get_scale(), where=recorder.where())


@recorder.guarded
def _note_norm(norm, parameters=None, max_norm=math.inf, *_, **__):
    """To read a DTensor's would be a collective, and a capturing GPU cannot be read."""
    plain = isinstance(norm, torch.Tensor) and not hasattr(norm, "to_local")
    captured = plain and norm.is_cuda and torch.cuda.is_current_stream_capturing()
    if plain and not captured and recorder.due(number := recorder.count("norm")):
        value, most = float(norm), float(max_norm)
        recorder.fact("norm", n=number, value=value, most=most, where=recorder.where())
