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
# script with ten edits, and after each of them there is a script that trains a GPT and resumes. The second of
# these stages, ``mingpt@2``, is run below. (A few lines are in some stages only. The diffs on this page leave them
# out, ``tools.series diff`` shows them.) Started like this it learns the source text of Python's standard library, character
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
#    :confirmed: 95d9e3a94f88
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
# ``mingpt@1`` trains, but in epochs: it prints its first loss after a pass over the whole text, and saves no
# earlier. ``--total_steps 2`` means two passes.
#
# .. lesson-diff:: mingpt
#    :edit: count-in-steps
#    :confirmed: 46e4c81acced
#
#    A pass over a text of any size takes hours: too long to wait for a loss, and too much to lose. So the
#    trainer counts steps of the optimizer, and what ``_run_epoch`` was to an epoch, ``_run_step`` is to a step.
#
#    ``DistributedSampler`` goes too, because its order depends on the number of processes. ``StepLoader`` makes
#    a step's data a function of two integers, the seed and the step. A generator seeded with both draws the
#    *global* batch, and each rank takes its share. Three things follow. A checkpoint needs one integer to say
#    where in the data training is. Resuming in the middle skips nothing. And the number of processes may change
#    between two runs. ``StepLoader`` also puts the batches on the device. A plain ``.to`` would wait until the GPU
#    has done all its work so far; from pinned memory the GPU fetches a batch by itself.
#
# .. run::
#    :expect: Step  4 \| loss 3
#
#    python -m tools.series run mingpt@2 --model gpt-nano --total_steps 4
#
# The batch size is also that of the step: ``--batch_size 12`` means twelve sequences, shared by all
# processes. One process, two, or two that take their shares one sequence at a time learn the same up to
# rounding, since they add in another order. At a learning rate of 10\ :sup:`-3`, validation at 1, 2 and 4
# processes agrees to 5 · 10\ :sup:`-6` for a thousand steps. At the preset's, 8 · 10\ :sup:`-3`, training is chaotic:
# even in 64 bits two curves are 3 · 10\ :sup:`-14` apart at step 100 and 10\ :sup:`-3` at step 300. To find a
# mistake, compare the first steps of two runs, or take a low rate.

# %% [markdown]
# Reporting every so often
# ------------------------
#
# .. lesson-diff:: mingpt
#    :edit: report-every-so-often
#    :confirmed: 0698449def96
#
#    ``mingpt@2`` prints a line per step. Each line costs an all-reduce, and reading the loss makes the CPU wait
#    for the GPU. Every ``--log_every`` steps is enough. ``mingpt/metrics.py`` writes the line, and the same
#    figures into a file beside the checkpoint: the loss of this step over all ranks, tokens per second since
#    the last line, and the share of the time that was not spent waiting for data.

# %% [markdown]
# Saving everything, while training continues
# -------------------------------------------
#
# .. lesson-diff:: mingpt
#    :edit: save-everything-meanwhile
#    :confirmed: 28561b4f666b
#
#    ``mingpt@3`` resumes, but with other dropout than the run would have had. Each rank draws dropout from its
#    own random state. So rank 0 collects the states of all ranks into the checkpoint, and each rank gets its own
#    back. The checkpoint also says which model and which text it belongs to, and another one is refused.
#
#    A checkpoint of GPT-2 has 1.5 GB. Training waits only until it has been copied to host memory; a
#    thread writes it while the next steps run. So a kill may come before the newest checkpoint is on the disk. It
#    then costs more than ``--save_every`` steps: those, and the ones made since the write began. It never costs
#    more than twice as many, because a save waits until the one before it is on the disk.

# %% [markdown]
# Mixed precision
# ---------------
#
# .. lesson-diff:: mingpt
#    :edit: mixed-precision
#    :confirmed: 1abd5ee46283
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
#    :confirmed: dd61cc2eae2e
#
#    If a rank's share of the batch does not fit into memory, the rank takes it in parts, whose gradients add up
#    in place. Their number follows from the batch, the processes and ``--micro_batch_size``, the most that fits.
#    Before this edit each part was a step of the optimizer, so ``--micro_batch_size`` changed the result.
#
#    Left alone, DDP would all-reduce after each part and send several times as much for the same
#    result. ``no_sync`` keeps it from that in all parts but the last. The context must enclose the
#    forward pass: DDP prepares the reduction there. With only ``backward`` inside everything is
#    right, and nothing is saved; a mistake that no loss curve shows.

# %% [markdown]
# Validating exactly
# ------------------
#
# .. lesson-diff:: mingpt
#    :edit: validate-exactly
#    :confirmed: 6d44103704f4
#
#    Five mistakes are common here, and each changes the number that models are chosen by.
#
#    The *text* is split in two, not its windows: windows overlap, and one that shares all but one
#    character with a window of the training text measures memory. Dropout is off (``eval``). Nothing is
#    drawn at random, so that two validations of the same weights agree. Every token counts once: the
#    last windows are filled up with targets that ``cross_entropy`` ignores, and it is the tokens that
#    are summed, over all ranks. And every rank takes part, because the others wait in ``all_reduce``.
#
#    ``--val_tokens`` says on how many tokens; 0 means all.

# %% [markdown]
# Clipping, warm-up and cosine
# ----------------------------
#
# .. lesson-diff:: mingpt
#    :edit: clip-and-schedule
#    :confirmed: 88dd183130d5
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
# Stopping when asked to
# ----------------------
#
# .. lesson-diff:: mingpt
#    :edit: stop-when-asked
#    :confirmed: 001a86c5c9f1
#
#    Schedulers send SIGTERM before they take a machine away, and leave half a minute. The handler
#    must not save, because it interrupts Python anywhere, perhaps in the middle of a collective. It sets a
#    flag. And a rank must not act on its own flag, or it leaves while the others wait for it. So the ranks sum
#    their flags, and all see the same sum after the same step. The sum travels over its own process
#    group, on the CPU and beside the step, so no GPU has to stop for it.
#
#    The handler outlives the trainer, and is a closure over the flag alone. If it kept a reference to ``self``,
#    DDP and its process group would outlive ``destroy_process_group``, and threads of the group might abort the
#    interpreter as it shuts down (``terminate called``).
#
#    All ranks save, without another validation, which might take too long. (One that has begun runs to its
#    end: ``--val_tokens`` bounds it.) They wait for the disk, wait for each
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
#    :confirmed: 4e422b94a370
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

# %% [markdown]
# What it buys
# ------------
#
# ``tools/bench/ladder.py`` measured this, not this page. A row's factor is its speed over the first row's, in the
# same seconds; a tenth is noise:
#
# .. run::
#    :expect: products by MKL
#
#    cat tools/bench/results/ladder.txt
#
# A small model on a CPU gains most by ``mingpt/cpu.py``, on which no line of the trainer or the model depends:
# delete it, and only the speed changes. PyTorch computes products in fp32 with MKL, which uses AVX-512 on Intel's
# processors only. PyTorch also has oneDNN, so rank 0 measures both at the start of a run, and the checkpoint keeps
# the choice, because their results differ in the last bits. And malloc returns memory to the system after each
# step and must fault it back in; ``cpu.py`` has it keep that memory (this saves 6 to 12 % of a step).
#
# A second process costs an all-reduce of 3 MB a step: the more sequences it has, the less that matters. The ladder
# of a GPU is another, and has not been measured yet. On GPUs whose theoretical peak is in ``mingpt/flops.py``, the
# log also gives the MFU: six operations per weight and token, and those of attention, over that peak.

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
# nearest is 12`` is said before the processes meet, and so is an option that does not exist. A text that is missing or
# shorter than a block is reported when it is read, by every rank; a checkpoint or weights that do not fit, too.
# torchrun's processes print the line once on each node; under ``mpirun`` or ``srun`` (:doc:`launchers`) rank 0 does.
#
# **A checkpoint of another run.** It would be overwritten by this one, so it is refused: by the shape of
# the model, by the tokenizer, or by the text.
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
