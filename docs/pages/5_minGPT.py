# %% [markdown]
"""
minGPT
======
"""

# %% [markdown]
# **You will be able to** train a GPT on a text of yours with everything the series has taught, on a
# laptop or on a cluster, stop it at any moment and lose nothing; and to say of each line of its
# trainer what would go wrong without it.
#
# **You need** the script of :doc:`4_multinode`. What is new is in the folder ``mingpt``: the trainer is that
# script with nine edits. Started like this it learns the source text of Python's standard library, character
# by character, so there is nothing to download; here for a few of its two thousand steps. Then a second
# command writes what it has learnt:
#
# .. run::
#    :expect: val loss [12]\.\d+ over 32,768 tokens
#    :show: 8 14
#
#    {mingpt} --total_steps 120 --eval_every 40 --log_every 10 --warmup_steps 40
#    python -m mingpt.sample --prompt "def " --count 300
#
# The words are not Python yet, but the lines are: it has found out about indentation, brackets and underscores.
# ``--data`` takes any text, a file or a URL; ``--help`` lists every option. Presets, as in ``-m mingpt.main gpu``,
# set them all. Their names, ``laptop``, ``gpu``, ``8gpus`` and ``nodes``, are suggestions, not requirements.

# %%
import re

import lab

run = "OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --standalone --nproc_per_node=2 --max-restarts=3 -m mingpt.main --total_steps 120 --eval_every 40 --log_every 10 --warmup_steps 40"
log = lab.run(run, 'python -m mingpt.sample --prompt "def " --count 300')
curves = {
    kind: [(int(s), float(v)) for s, v in re.findall(rf"Step +(\d+) \| {kind} loss ([\d.]+)", log)]
    for kind in ("train", "val")
}
figure, axes = lab.picture(
    f"Loss over steps. Training ends at {curves['train'][-1][1]:.2f}, validation at "
    f"{curves['val'][-1][1]:.2f} nats a character."
)
axes.plot(*zip(*curves["train"], strict=True), label="train, one batch")
axes.plot(*zip(*curves["val"], strict=True), "o", label="validation")
axes.set(xlabel="step", ylabel="loss, nats a character")
axes.legend()

# %% [markdown]
# A model, a text, a configuration
# --------------------------------
#
# .. lesson-diff:: mingpt
#    :edit: a-model-and-a-text
#    :confirmed: ea2c956062a4
#
#    What the trainer trains is not its business: it sees tensors ``source`` and ``targets`` go in and
#    a loss come out. The model is GPT-2, function for function, in ``mingpt/model.py``: with the
#    published weights it gives the same numbers as the reference implementation. The text is turned
#    into tokens once, by one process of each node while the others wait, into a file that all map
#    into memory; what that process returns, *or the error it raises*, reaches every rank, since a
#    rank that never learns of a failure waits until a timeout. The optimizer is AdamW with one kernel for
#    all weights (``fused``) and no decay for biases.
#
#    Thirty settings are too many for arguments of ``__init__``, so all come in one object, whose fields are the
#    options of the command line. It is checked before any process group exists: a mistake there should cost
#    seconds, not the minutes that others would wait. ``mingpt/main.py`` is the command line, ``metrics.py`` the log.

# %% [markdown]
# Counting in steps
# -----------------
#
# .. lesson-diff:: mingpt
#    :edit: count-in-steps
#    :confirmed: 0c24589ba6e9
#
#    A pass over a text of any size takes hours; nobody wants to lose that much, or to evaluate that
#    seldom. So everything is counted in steps of the optimizer, and the epoch is gone.
#
#    With it goes ``DistributedSampler``, whose order depends on the number of processes. What a step learns
#    from is now a function of two integers, seed and step: a generator seeded with both draws the whole
#    *global* batch, and each rank takes its share of it. Three things follow. The position in the data is one
#    integer, so a checkpoint need not say more. Nothing has to be skipped when training goes on in the middle.
#    And the number of processes may change between one run and the next.
#
# The batch size, too, is that of the step: ``--batch_size 12`` means twelve sequences, shared by however many
# processes there are. One process, two, or two that take their shares one sequence at a time, learn the same,
# but for rounding: they add in another order. At a learning rate of 10\ :sup:`-3` validation at 1, 2 and 4
# processes agrees to 5 · 10\ :sup:`-6` for a thousand steps. At the preset's, 8 · 10\ :sup:`-3`, training is chaotic:
# even in 64 bits two curves are 3 · 10\ :sup:`-14` apart at step 100 and 10\ :sup:`-3` at step 300. To find a
# mistake, compare the first steps of two runs, or take a low rate.

# %% [markdown]
# Mixed precision
# ---------------
#
# .. lesson-diff:: mingpt
#    :edit: mixed-precision
#    :confirmed: f59ee7d5242e
#
#    Matrix products in 16 bits take half of the memory traffic, and on a GPU run on units that are many times
#    as fast. ``autocast`` chooses for each operation: products in 16 bits, sums and softmax in 32. Weights,
#    gradients and the optimizer's state stay in 32, and so do the buckets that DDP sends.
#
#    ``bf16`` has the range of ``fp32`` and needs nothing else. ``fp16`` has not: gradients below
#    3 · 10\ :sup:`-8` become 0. The scaler multiplies the loss by a large number before
#    ``backward`` and divides the gradients by it afterwards. If one of them overflows it leaves the step out and
#    halves the number; every rank does so alike, since all have the same, averaged gradients. The
#    number is part of the state, and goes into the checkpoint.
#
#    The loss is a sum, not a mean: the mean of means is wrong as soon as two parts differ in size.
#    Each caller divides by the number of tokens that it knows.

# %% [markdown]
# Accumulating gradients
# ----------------------
#
# .. lesson-diff:: mingpt
#    :edit: accumulate-gradients
#    :confirmed: 1f7176940de0
#
#    If a rank's share of the batch does not fit into memory it is taken in parts, whose gradients add up in place.
#    How many follows from batch, processes and ``--micro_batch_size``, the most that fits: nothing to tune.
#
#    Left alone, DDP would all-reduce after each part and send several times as much for the same
#    result. ``no_sync`` keeps it from that in all parts but the last. The context must enclose the
#    forward pass: DDP prepares the reduction there. With only ``backward`` inside everything is
#    right, and nothing is saved; a mistake that no loss curve shows.

# %% [markdown]
# Clipping, warm-up and cosine
# ----------------------------
#
# .. lesson-diff:: mingpt
#    :edit: clip-and-schedule
#    :confirmed: 2d9b347e7c10
#
#    One batch with a huge gradient can undo an hour of training, so gradients longer than
#    ``--grad_clip`` are scaled to that length. All ranks have the same gradients and find the same
#    length: no collective is needed. ``unscale_`` must come first. Otherwise it is the scaled
#    gradients that are clipped, to a length that then is divided by 65,536. AdamW hides this mistake,
#    because it does not care for the length of the gradient: training only gets somewhat slower.
#
#    The learning rate is a function of the step as well: no scheduler's state can be forgotten. It starts small,
#    because AdamW's estimates are poor at first, and ends small, because the last improvements are.

# %% [markdown]
# Validating exactly
# ------------------
#
# .. lesson-diff:: mingpt
#    :edit: validate-exactly
#    :confirmed: 623c51f37fd3
#
#    This is what became of ``_run_epoch``: the one thing that still is done by whole passes. Five
#    mistakes are common here, and each changes the number that models are chosen by.
#
#    The *text* is split in two, not its windows: windows overlap, and one that shares all but one
#    character with a window of the training text measures memory. Dropout is off (``eval``). Nothing is
#    drawn at random, so that two validations of the same weights agree. Every token counts once: the
#    last windows are filled up with targets that ``cross_entropy`` ignores, and it is the tokens that
#    are summed, over all ranks. And every rank takes part, because the others wait in ``all_reduce``.
#
#    In exchange ``--val_tokens`` says on how many tokens; 0 means all. Once told to stop, the run skips
#    validation.

# %% [markdown]
# Saving everything, while training goes on
# -----------------------------------------
#
# .. lesson-diff:: mingpt
#    :edit: save-everything-meanwhile
#    :confirmed: 8b23a811ff46
#
#    To go on as if nothing had happened takes more than weights. Dropout draws from a random state
#    that every rank has for itself, so the states of all are collected, and each gets its own back.
#    That has a trap: a ``DataLoader`` draws a seed from the same state whenever its iterator is made,
#    that is, once more often in a run that was interrupted. With a generator of its own it does not.
#
#    A checkpoint of GPT-2 has 1.5 GB. Training waits only until it has been copied to host memory; a
#    thread writes it while the next steps run. But then a kill may hit when the newest checkpoint is not
#    on the disk yet. ``--save_every`` promises that no more steps than that are lost: two
#    checkpoints are written in each such span, and one is finished before the next is begun.

# %% [markdown]
# Stopping when asked to
# ----------------------
#
# .. lesson-diff:: mingpt
#    :edit: stop-when-asked
#    :confirmed: 29ca18fd9630
#
#    Schedulers send SIGTERM before they take a machine away, and leave half a minute. The handler
#    must not save: it interrupts Python anywhere, perhaps in the middle of a collective. It sets a
#    flag. And a rank must not act on its own flag, or it leaves while the others wait for it: the
#    flags are summed, and all see the same sum after the same step. The sum travels over a process
#    group of its own, on the CPU and beside the step, so that no GPU is stopped to look at it.
#
#    The handler holds that flag and not ``self``: it outlives the trainer, and with it would keep DDP and the
#    process group beyond ``destroy_process_group``. Then it is the end of Python that ends the group's threads;
#    now and then one is not done, and the process aborts: ``terminate called``.
#
#    All ranks save, without another validation, which might take too long. (One that has begun is
#    ended first: have it take seconds, by ``--val_tokens``.) They wait for the disk, wait for each
#    other, and exit with a status that is not 0, so that the scheduler starts the job
#    again: 143 by default, which is what a shell reports for a process that SIGTERM ended. ``os._exit``
#    ends the process at once, without shutting the interpreter down; so the group's threads can do no harm.
#
# .. run::
#    :expect: Resuming after step 4\d
#    :show: 4 4
#
#    OMP_NUM_THREADS=1 python docs/labs/stop.py 40 torchrun --standalone --nproc_per_node=2 -m mingpt.main --model gpt-nano --total_steps 100 --log_every 20 || echo "status $?"
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=1 -m mingpt.main --model gpt-nano --total_steps 60 --log_every 20
#
# It went on with one process, as if there had been one from the beginning.
# (That status is ``torchrun``'s, which has one of its own for this; that of the workers is in its
# report. If a worker is asked to stop and ``torchrun`` is not, it starts all again, up to
# ``--max-restarts`` times. ``torchrun`` also sends SIGTERM to those who survive a failure. They take it
# for a request, find their peer gone, and end; where the peer's loss goes unnoticed, as with NCCL,
# ``torchrun`` kills them after 30 seconds.)

# %% [markdown]
# Fewer messages, copies and kernels
# ----------------------------------
#
# .. lesson-diff:: mingpt
#    :edit: waste-nothing
#    :confirmed: 91df97086595
#
#    DDP sends gradients in buckets, the first of 1 MB so that sending begins early, unless it is told how large
#    they are. All of this model's go into one of 25 MB: with two processes a second message costs 1 to 5 % of a
#    step more than an early start gains. As views of the bucket the gradients are where they are sent from: one copy
#    and the memory of one set of gradients less. (``zero_grad`` takes the views away, and the next ``backward``
#    brings them back.)
#
#    ``--compile`` fuses what stands between the matrix products into few kernels, the softmax of the loss as well,
#    which the model computes for that: with four layers, GPT-2's 50,257 tokens and ``bf16``, a CPU takes twice as long
#    if it is left out. It is called on the DDP model, not on the one inside: so the compiler cuts the graph where the
#    buckets end, and sending still overlaps with ``backward``. And it is the method ``compile``, which changes no
#    name: after ``torch.compile(model)`` every key of a checkpoint would begin with ``_orig_mod.``.
#
#    A plain ``.to`` waits until the GPU has done all that it was given before, and then it has nothing to do until
#    Python has caught up. From pinned memory, where ``data.to_device`` puts it, a GPU fetches the batch by itself.

# %% [markdown]
# What it buys
# ------------
#
# By ``tools/bench/ladder.py``, not by this page. Speeds and factors are medians, each by itself; a tenth is noise:
#
# .. run::
#    :expect: products by MKL
#
#    cat tools/bench/results/ladder.txt
#
# A small model on a CPU gains most by what no line of the trainer shows. PyTorch has MKL compute products in
# fp32, and MKL uses AVX-512 on Intel's processors only: on others, as above, ``mingpt/linear.py`` asks oneDNN,
# which PyTorch has as well (compiled, it is MKL again). What a step frees, malloc gives back to the system, to
# fetch it page by page for the next: ``mingpt/memory.py`` has it keep that. (By turns, step by step, this saves
# 6 to 12 %, a fused AdamW 5 to 8 %.) A second process costs an all-reduce of 3 MB a step: the more sequences it
# has, the less that weighs. On a GPU the ladder is another, and has not been run on one yet. MFU, in the log,
# is the share of the matrix products that this device could have done: six operations for each weight and
# token, and those of attention, over the fastest product measured at the start.

# %% [markdown]
# When DDP is not enough
# ----------------------
#
# DDP keeps everything on every GPU: in this trainer 16 bytes for each weight (the weight, its gradient and
# AdamW's two averages, 4 bytes each), besides activations. GPT-2 XL, 1.6 billion weights, takes 25 GB.
#
# * If the optimizer's state is too much, shard it: ``ZeroRedundancyOptimizer`` around AdamW, or
# * shard weights, gradients and state, and gather the weights of a layer when it is its turn:
#   ``torch.distributed.fsdp.fully_shard`` (FSDP2). Same data parallelism, more traffic, and a checkpoint that no
#   rank has as a whole: ``torch.distributed.checkpoint`` writes and reads those.
# * If one layer is too much for a GPU, or the batch cannot grow any more, divide the matrices
#   (tensor parallelism, within a node) or the layers (pipeline parallelism, between nodes).
# * If activations are too much, compute them again in backward: ``torch.utils.checkpoint``.

# %% [markdown]
# What could go wrong
# -------------------
#
# **A batch that cannot be shared.** ``batch_size is 13, but must be a multiple of the number of processes, 2: the
# nearest is 12`` is said before the processes meet. So is what else can be known then: an option that does not exist,
# a file that is not there, a text shorter than a block, a checkpoint or weights that do not fit. What takes the
# whole text, or a look at a URL, is said after that. (A URL out of reach may have been read before: then those tokens
# are taken.) torchrun's processes say it once on each node; under ``mpirun`` or ``srun`` (:doc:`launchers`) rank 0 does.
#
# **A checkpoint of another run.** It would be overwritten by this one, so it is refused: by the shape of
# the model, by the vocabulary, or by the text.
#
# **Only 85 % of the time goes into computing, the rest into waiting for data.** The log says so below
# 90 %: the file with the tokens is on a disk that is too slow, or shared by too many.
#
# :doc:`symptoms` lists more, by the text of their error.

# %% [markdown]
# The whole script
# ----------------
#
# .. lesson-script:: mingpt
