# %% [markdown]
"""
Fast training
=============
"""

# %% [markdown]
# **You will be able to** train in 16 bits, with batches that do not fit into memory, and say when a
# second process makes a run faster and when slower.
#
# **You need** the stage ``mingpt@7`` of :doc:`5b_robust`.

# %% [markdown]
# Mixed precision
# ---------------
#
# The trainer computes in ``fp32``, floating-point numbers of 32 bits. It has nothing else yet:
#
# .. run::
#    :expect: mingpt@8 does
#    :status: 2
#
#    python -m tools.series run mingpt@7 --data LICENSE --precision bf16
#
# In 16 bits a matrix product moves half as many bytes, and the Tensor Cores of a GPU compute it
# many times as fast. (Figures on this page are from a CPU, which has nothing like them. For those
# of a GPU see :doc:`5d_gpus`.)
#
# .. lesson-diff:: mingpt
#    :edit: mixed-precision
#    :confirmed: 1abd5ee46283
#
#    Within ``autocast`` PyTorch chooses for each operation: 16 bits for matrix products, and 32 for
#    those that need the precision, such as the loss. Weights, gradients and the optimizer's
#    averages stay in 32 bits, and so do the messages of DDP.
#
#    ``bf16`` has the range of ``fp32`` with fewer digits, and needs nothing else. ``fp16`` has a
#    smaller range. In ``backward()`` the gradients of activations are in 16 bits too, and those
#    below 3 · 10\ :sup:`-8` become 0. So the scaler multiplies the loss by a large number before
#    ``backward()``. Before the optimizer's step, ``unscale_`` divides the gradients by it. If a
#    gradient overflows, the scaler skips the step and halves the number. All ranks do so alike,
#    because they have the same averaged gradients. The number is part of the state, so it is in the
#    checkpoint. In other precisions the scaler does nothing.
#
#    ``unscale_`` must come before clipping. Otherwise the scaled gradients are clipped, and become
#    far too short when they are divided. AdamW hides this mistake, because a constant factor in all
#    gradients hardly changes its steps.
#
# .. run::
#    :expect: (?s)weights (\S+)\n.*weights (?!\1)
#    :mark: probe
#
#    python -m tools.series run --probe mingpt@8 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 1
#    python -m tools.series run --probe mingpt@8 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 1 --precision bf16 --checkpoint_path bf16.pt
#    python -m tools.series run --probe mingpt@8 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 1 --precision fp16 --checkpoint_path fp16.pt
#
# The first run is in ``fp32``, the others in ``bf16`` and ``fp16``. The losses differ by little, and
# the probe's ``weights``, the sum of a rank's weights, show that the runs differ. Do not expect the
# same of speed: "What it buys" below has a CPU on which ``bf16`` is slower.
#
# Mixed precision also saves memory: that of *activations*, which the forward pass keeps for the
# backward pass. In exchange ``autocast`` keeps a 16-bit copy of the weights:
#
# .. run::
#    :expect: (?s)activations 32 MB in float32.*activations 16 MB in bfloat16, weights 2 MB in float32, gradients 2 MB in float32, copies of weights \d MB in bfloat16
#
#    python docs/labs/activations.py

# %% [markdown]
# Accumulating gradients
# ----------------------
#
# If a rank's share of the batch does not fit into memory, the rank can take it in parts.
# ``--micro_batch_size`` is the number of sequences that fits. ``mingpt@8`` takes the parts, here
# one sequence each, but updates the weights after each of them:
#
# .. run::
#    :expect: Step +5 \| train
#    :mark: Step +\d \| train
#
#    python -m tools.series run mingpt@8 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 1 --micro_batch_size 1
#
# These are not the losses of the first run above. An option that should only save memory changes
# the result.
#
# .. lesson-diff:: mingpt
#    :edit: accumulate-gradients
#    :confirmed: dd61cc2eae2e
#
#    ``_run_step`` now updates the weights once, after all parts. Each ``backward()`` adds its
#    gradients to those of the parts before, and the loss is divided by the number of parts.
#
#    DDP would all-reduce after each part, and send several times as much for the same result.
#    ``no_sync`` prevents this in all parts but the last. It must enclose the forward pass too,
#    because DDP decides there whether the next ``backward()`` sends. With only ``backward()``
#    inside, the result is right and nothing is saved; no loss curve shows this mistake.
#
# .. run::
#    :expect: Step +5 \| train
#    :mark: Step +\d \| train
#
#    python -m tools.series run mingpt@9 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 1 --micro_batch_size 1
#
# The losses are those of the first run again.

# %% [markdown]
# Fewer messages, copies and kernels
# ----------------------------------
#
# DDP sends the gradients in :term:`buckets <bucket>`. The first has 1 MB, so that sending begins
# early in ``backward()``. The gradients of ``gpt-micro`` have 3 MB, and take two all-reduces:
#
# .. run::
#    :expect: in 2 all-reduces
#    :mark: probe
#
#    python -m tools.series run --probe mingpt@9 --data LICENSE --block_size 16 --total_steps 5
#
# .. lesson-diff:: mingpt
#    :edit: waste-nothing
#    :confirmed: 550ee2a30e8a
#
#    If ``bucket_cap_mb`` is set, the first bucket is as large as the others. Then this model needs
#    one all-reduce per step. In our measurements, two cost 1 to 5 % of a step more than the
#    early start gained (``tools/bench/results/ddp_cost.txt``). A model of many buckets still starts
#    early.
#
#    DDP sorts a bucket's gradients in the order of its first backward pass. Where a gradient lies
#    decides in which order its terms are added, and so the last bit of the sum, if there are more
#    than two ranks. That first pass is not repeated when a run resumes, so ``_load_checkpoint`` makes
#    one. Nobody uses its gradients. Without it, a run on four CPU processes that stopped after five
#    steps and resumed ended with weights that differed by 4e-7; with it they are equal. The scripts
#    before this one leave it out.
#
#    With ``gradient_as_bucket_view`` the gradients lie in the buckets. That saves one copy per
#    step, and the memory of one set of gradients.
#
#    ``--compile`` fuses the small operations between the matrix products into few kernels, those of
#    the loss included. It is called on the DDP model, so the compiler can cut the graph where
#    buckets end: then DDP sends a bucket while ``backward()`` computes the next. Nothing is fused
#    across a cut, and GPT-2 has 14 graphs instead of 1 (counted on a CPU). So we let it cut only
#    if there is something to overlap with. One process sends nothing. A process that accumulates
#    sends in one part of many.
#
#    The method ``compile`` changes no names. If the model were wrapped by ``torch.compile`` before
#    DDP, every name in a checkpoint would begin with ``_orig_mod.``.
#
# .. run::
#    :expect: in 1 all-reduce\b
#    :mark: probe
#
#    python -m tools.series run --probe mingpt@10 --data LICENSE --block_size 16 --total_steps 5
#
# One all-reduce per step. (Five steps say nothing about speed.)

# %% [markdown]
# Two processes: slower and faster
# --------------------------------
#
# A second process halves what each process computes, and adds an :term:`all-reduce`. Here is a very
# small step, of two sequences of 16 characters, with one process and with two. The line shown is
# the last of each run:
#
# .. run::
#    :expect: tokens/s
#    :mark: tokens/s
#    :alone:
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=1 -m mingpt.main --data LICENSE --model gpt-nano --block_size 16 --batch_size 2 --total_steps 300 --log_every 100 | grep train | tail -n 1
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m mingpt.main --data LICENSE --model gpt-nano --block_size 16 --batch_size 2 --total_steps 300 --log_every 100 --checkpoint_path two.pt | grep train | tail -n 1
#
# And here is a larger one, of 64 sequences of 64 characters, with the default model:
#
# .. run::
#    :expect: tokens/s
#    :mark: tokens/s
#    :alone:
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=1 -m mingpt.main --data LICENSE --batch_size 64 --total_steps 20 --log_every 5 | grep train | tail -n 1
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m mingpt.main --data LICENSE --batch_size 64 --total_steps 20 --log_every 5 --checkpoint_path two.pt | grep train | tail -n 1
#
# On two free cores, the second process makes the small step slower and the large one faster. On a
# busy machine the figures vary. (The losses of the small runs differ because rounding grows at a
# high learning rate, see the end of :doc:`5a_exact`.)
#
# Why? Let a step take the time C on one process. On two it takes C / 2, and R for the all-reduce.
# Two processes win if R is less than C / 2.
#
# * C grows with the tokens of a step. R does not: the gradients are as many as the weights,
#   whatever the batch.
# * R has two parts. One grows with the bytes: 0.4 MB for the small model, 3 MB for the other. The
#   other part is latency, the time until even one byte has arrived. It does not shrink with the
#   model, and it grows with the number of processes.
# * Part of R is hidden, since DDP sends while ``backward()`` still runs. A short ``backward()``
#   hides little.
#
# So give each process enough to do: enlarge the batch with the number of processes, and read
# :doc:`batch_and_learning_rate` first, because that changes the training. Between GPUs the same
# holds with other numbers. There NCCL's all-reduce is itself a kernel, which takes some of the
# GPU's multiprocessors from ``backward()``.

# %% [markdown]
# What it buys
# ------------
#
# The next table was measured earlier (``tools/bench/results/README`` names the script). A row's factor is its speed
# over that of the first row. Differences below a tenth are noise:
#
# .. run::
#    :expect: products by MKL
#
#    cat tools/bench/results/ladder.txt
#
# "Two" is short for two processes of one thread each. The batch has 12 sequences unless a row says
# otherwise, and matrix products are by oneDNN, except in the second row and in the compiled one.
# Read the table by its factors:
#
# * With 12 sequences, two processes gain 1.26. Two threads of one process gain more, 1.42: they
#   need no all-reduce. With 64 sequences per process, two processes gain 1.85 / 1.10 = 1.68.
# * ``bf16`` loses on this CPU: 1.04 instead of 1.26. So does ``--compile``: 1.01 instead of 1.42,
#   because compiled code multiplies by MKL here. Both help on GPUs.
# * The second row shows what ``mingpt/cpu.py`` gains on this processor: with MKL instead of oneDNN,
#   the factor is 0.63.
#
# The ladder of a GPU is in :doc:`5d_gpus`.
#
# .. fold:: What mingpt/cpu.py does
#
#    No line of the trainer or the model depends on it: delete it and the line of ``mingpt/main.py``
#    that calls it, and only the speed changes. PyTorch multiplies in ``fp32`` with the library MKL,
#    which uses AVX-512 on Intel's processors only. PyTorch also has oneDNN, and ``cpu.py`` takes that
#    on an AMD processor with AVX-512.
#
#    By default the C library returns freed memory to the system after each step, and the next step
#    must ask for it again, page by page. ``cpu.py`` makes it keep the memory, which saves 4 to 12 %
#    of a step.
#
# .. fold:: Why the model computes the loss
#
#    Only what is compiled can be fused. With four layers, the 50,257 tokens of GPT-2 and ``bf16``,
#    a CPU takes twice as long if the loss is left out (``tools/bench/results/compiled_loss.txt``).

# %% [markdown]
# When DDP is not enough
# ----------------------
#
# DDP keeps everything on every GPU. In this trainer that is 16 bytes per weight, besides
# activations: the weight, its gradient and AdamW's two averages, 4 bytes each. GPT-2 XL, with 1.6
# billion weights, takes 25 GB.
#
# * If the optimizer's state is too large, shard it: give each rank a part of it.
#   ``ZeroRedundancyOptimizer`` does this around AdamW.
# * If weights and gradients are too large as well, shard them too:
#   ``torch.distributed.fsdp.fully_shard`` (FSDP2) gathers the weights of a layer when it is its
#   turn. It sends more, and no rank has a whole checkpoint: ``torch.distributed.checkpoint`` writes
#   and reads those.
# * If one layer is too large for a GPU, divide the matrices (*tensor parallelism*, within a node)
#   or the layers (*pipeline parallelism*, between nodes).
# * If activations are too large, compute them again in ``backward()``: ``torch.utils.checkpoint``.

# %% [markdown]
# What could go wrong
# -------------------
#
# **The GPU waits for data.** Watch ``computing`` in the log. If it falls below 90 %, the file with
# the tokens is on a disk that is too slow, or shared by too many: pass another ``--cache``.
#
# **The first lines are slow.** With ``--compile`` the first step compiles. The speed of later lines
# counts.
#
# :doc:`symptoms` lists more, by the text of their error.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 5c_fast
#    :next: :doc:`5d_gpus`, where all this pays
#    :also: torch.nn.parallel.DistributedDataParallel.no_sync, torch.nn.Module.compile, torch.distributed.optim.ZeroRedundancyOptimizer, torch.distributed.fsdp.fully_shard, torch.distributed.checkpoint <torch.distributed.checkpoint>, torch.utils.checkpoint <torch.utils.checkpoint>
#
#    You can now train in 16 bits, take a batch in parts, and predict whether a second process
#    makes a step faster.
#
#    .. fold:: A batch does not fit into one GPU. How does accumulating four parts differ from using four GPUs?
#
#       The update is the same up to rounding. One GPU computes the parts one after the other, and
#       needs no all-reduce. Four GPUs compute them at the same time, and pay for an all-reduce per
#       step. Each of them holds the whole model and the state of its optimizer.
#
#    .. fold:: One process takes 4 ms for a step, and an all-reduce takes 3 ms. Nothing overlaps. When do two processes win?
#
#       With this batch they take 4 / 2 + 3 = 5 ms and lose. With twice the batch they take 4 + 3 =
#       7 ms against 8, and win. The all-reduce stays at 3 ms, because the gradients are as large
#       as before.
#
#    .. fold:: In ``fp16``, one gradient overflows on rank 1 only. Why does rank 0 skip the step as well?
#
#       DDP averages the gradients before the scaler looks at them. Where one rank's gradient is
#       infinite, the average is infinite or not a number, and every rank has the same average.
#       Each rank sees it, skips the step and halves the factor, so the ranks stay equal.
