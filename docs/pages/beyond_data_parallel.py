# %% [markdown]
"""
DataParallel: several devices in one process, and why not
=========================================================
"""

# %% [markdown]
# **You will be able to** say what ``torch.nn.DataParallel`` does in each step, and why DDP replaced
# it.
#
# **You need** the script of :doc:`0_intro`, and :doc:`2_multigpu` for the probe.
#
# ``torch.nn.DataParallel`` (DP) is the older way to use all GPUs of a machine: one process, and one
# changed line. DP is not deprecated, but PyTorch recommends DDP even on one machine, and
# SpeechBrain no longer supports DP. Without GPUs, DP silently calls the module as it is. So this
# lesson writes the steps out, and without GPUs, the CPU takes the place of two devices.

# %% [markdown]
# Splitting each batch
# --------------------
#
# .. lesson-diff:: data_parallel
#    :edit: split-each-batch
#    :confirmed: c9019f6790df
#
#    These are three of DP's four *primitives*, which run for every batch:
#
#    - **Scatter.** Each device gets a part of the batch, so ``--batch_size`` is the total here.
#    - **Replicate.** On GPUs, ``.to`` copies all weights to every further device, and
#      ``functional_call`` calls the module with this copy. Autograd records the copying, so the
#      gradients of all copies add up in the originals, on the first device.
#    - **Gather.** The outputs come together on the first device, which computes the loss.
#
# .. run::
#    :expect: 2 forward passes per step
#    :mark: forward passes
#
#    python -m tools.series run --probe data_parallel@1 3 3
#
# Each step makes two forward passes, one after the other.

# %% [markdown]
# All parts at the same time
# --------------------------
#
# .. lesson-diff:: data_parallel
#    :edit: in-threads
#    :confirmed: 3d64bc3e3c12
#
#    The fourth primitive is **parallel apply**: one thread per device calls its own copy of the
#    module, because ``functional_call`` changes a module while it runs. ``map`` returns the outputs
#    in the order of the parts, so each output is compared with its own target.
#
# .. run::
#    :expect: forward passes per step, in threads
#    :mark: forward passes
#
#    python -m tools.series run --probe data_parallel 3 3
#
# Threads cost this tiny model more than they gain. The result equals that of one device with the same
# batch, up to rounding:
#
# .. run::
#    :expect: weights [\d.]+e-0[789]
#    :mark: weights
#
#    python -m beyond.data_parallel 12 12 --batch_size 64 | tail -n 1
#    python single_gpu.py 12 12 --batch_size 64 | tail -n 1
#    python docs/labs/distance.py single_gpu.pt data_parallel.pt

# %% [markdown]
# Why not
# -------
#
# - **Threads wait for each other.** Only one thread of a process can run Python at a time (the
#   GIL).
# - **Weights travel in every step** from the first device to all others, and gradients travel back.
#   DDP sends gradients, during the backward pass, and no weights.
# - **The first device holds more**: the outputs of all parts, the gradients and the optimizer's
#   state. This is why a script with DP runs out of memory on GPU 0 only.
# - **Autocast loses its type.** ``torch.autocast`` holds for one thread. DP turns autocast on again
#   in its threads, but without your ``dtype``, so ``bfloat16`` becomes ``float16``. Use
#   ``torch.autocast`` inside the model's ``forward()``.
# - **One machine only.**
#
# To get from DP to DDP, follow :doc:`your_script`. The keys in DP's checkpoints begin with
# ``module.`` (:doc:`symptoms`).

# %% [markdown]
# Choosing GPUs
# -------------
#
# A process uses the GPUs that it sees. ``CUDA_VISIBLE_DEVICES=1,5`` shows it two GPUs and renumbers
# them, so ``cuda:0`` is the machine's GPU 1. torch reads the variable even without a GPU:
#
# .. run::
#    :expect: \{0: 1, 1: 5\}
#
#    CUDA_VISIBLE_DEVICES=1,5 python -c "import torch; print(dict(enumerate(torch.cuda._parse_visible_devices())))"
#
# Set it before Python starts, because CUDA reads it once. An empty value hides all GPUs:
#
# .. run::
#    :expect: CUDA_VISIBLE_DEVICES is empty|No GPU
#    :show: 1 0
#
#    CUDA_VISIBLE_DEVICES= python single_gpu.py 1 1

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_data_parallel
#    :next: :doc:`1_theory`, which shows what DDP does instead
#    :also: torch.nn.DataParallel
#
#    You can now read a script that uses ``DataParallel``, and say what it costs.
#
#    .. fold:: A script with DP on 4 GPUs has a batch size of 256. Which batch size does it need with DDP?
#
#       64 per process: the four processes load 256 samples together.
#
#    .. fold:: Replicas are copies, and each step makes new ones. What happens to a buffer that ``forward`` changes?
#
#       DP keeps only a change in place on the first device, whose replica shares the memory of the
#       module. So batch normalisation keeps running means of the first part only.
#       (``data_parallel`` above keeps none.)
