# %% [markdown]
"""
Pipeline parallelism: each process holds some blocks
====================================================
"""

# %% [markdown]
# **You will be able to** cut a model into stages, train it with one stage per process, and say how
# long each process waits for the others.
#
# **You need** the trainer of :doc:`5d_gpus`. :doc:`parallel_fsdp` divides the same model in another
# way.
#
# FSDP moves weights: each process computes all blocks, and gathers the weights of each block when
# it needs them. A *pipeline* moves activations. It cuts the model into *stages* of consecutive
# blocks, and each process holds one stage. The first stage sends its output to the second, and so
# on. In ``backward()``, gradients of these activations travel back. So a stage's weights, gradients
# and optimizer state stay on their process, except the gradient of one weight, and what is saved.
#
# Stages depend on each other, so while one computes, the others wait. Therefore the batch is cut
# into *micro-batches*. While stage 2 computes micro-batch 1, stage 1 computes micro-batch 2.

# %% [markdown]
# A pipeline by hand
# ------------------
#
# This is GPipe (`Huang et al. 2019 <https://arxiv.org/abs/1811.06965>`__), a simple *schedule* (the
# order in which a stage computes its micro-batches): first all forward passes, then all backward
# passes.
#
# .. literalinclude:: ../theory/pipeline_by_hand.py
#    :pyobject: gpipe
#
# ``dist.send`` and ``dist.recv`` move a tensor from one rank to another. Autograd knows nothing of
# messages, so each stage has its own graph. It begins at the received tensor, which therefore
# requires a gradient, and ends at the output. ``outputs.backward(gradient)`` continues from the
# gradient that the next stage sends. Gradients of the weights add up over the micro-batches.
#
# The script cuts eight layers into four stages, and compares the gradients with those of one
# process on the whole batch:
#
# .. run::
#    :expect: (?s)Stage 3: 2 layers, gradients differ by \d\.?\d*e-\d+ from one process.*Loss: differs
#    :mark: differ
#
#    python docs/theory/pipeline_by_hand.py
#
# PyTorch has the receiving, the sending and several schedules in ``torch.distributed.pipelining``.
# The rest of this page uses it for the GPT.

# %% [markdown]
# One batch for all processes
# ---------------------------
#
# With DDP, each process reads its share of the batch. In a pipeline, the whole batch passes through
# every stage: the first needs its tokens, and the last its targets.
#
# .. lesson-diff:: pipeline
#    :edit: one-batch-for-all
#    :confirmed: e278088396ed
#
#    **The batch.** A ``StepLoader`` draws the same batch on all ranks, and takes this rank's share.
#    As rank 0 of 1, it takes everything, in one piece.
#
#    **DDP goes.** Without dropout, all ranks compute the same now, so there is nothing to average.
#
#    **The totals** need no sum, either. Soon only the last stage will know the loss. So it
#    broadcasts its totals, and rank 0 prints them.
#
# For the moment, each process trains the whole model on the whole batch. The loss is that of
# :doc:`parallel_fsdp`, because the batch is the same:
#
# .. run::
#    :expect: (?s)Step +20 \| train loss 3\.8287.*gradients its own
#    :show: 0 0
#    :mark: Step +20 \| train|gradients
#
#    python -m tools.series run --probe pipeline@1 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --save_every 20 --log_every 5

# %% [markdown]
# Cutting the model into stages
# -----------------------------
#
# .. lesson-diff:: pipeline
#    :edit: cut-into-stages
#    :confirmed: 71a894f18449
#
#    **A stage** takes some blocks of the GPT, not copies of them. The first also has the
#    embeddings, the last also the final ``LayerNorm`` and the head. If the blocks cannot be divided
#    equally, some stages get one more, among them the first. A stage without a block is refused.
#
#    **The output** is one row per token, as ``CrossEntropyLoss`` wants it.
#
#    **The chain** of all stages is still in each process. It must compute what the GPT computes.
#
# .. run::
#    :expect: Step +20 \| train loss 3\.8287
#    :show: 0 0
#    :mark: Step +20 \| train
#
#    python -m tools.series run pipeline@2 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --save_every 20 --log_every 5

# %% [markdown]
# A stage per process
# -------------------
#
# .. lesson-diff:: pipeline
#    :edit: a-stage-per-process
#    :confirmed: 86258c0a9c88
#
#    **The schedule.** ``PipelineStage`` sends and receives. ``Schedule1F1B`` cuts the batch into
#    micro-batches and runs forward and backward of each; ``eval`` runs forward only. There are as
#    many micro-batches as stages, or a multiple if ``--micro_batch_size`` asks for smaller ones. Only
#    the first stage passes tokens to the schedule, and only the last one gets losses back.
#
#    **The scale.** A schedule divides gradients by the number of micro-batches, which is right if
#    the loss is a mean. Here it is a sum, because a validation counts tokens. ``scale_grads=False``
#    turns that off; the stage's ``scale_grads`` divides by the batch's tokens.
#
#    **The memory.** ``model`` still has all blocks, in host memory. ``swap_tensors`` replaces each
#    weight of another stage by a tensor on the device ``meta``, which has a shape but no memory. The
#    optimizer keeps a place for it, which the checkpoint will need.
#
#    **fp16** needs one scale of the loss that all stages change together. ``GradScaler`` has none,
#    so the script refuses fp16.
#
# .. run::
#    :expect: (?s)Step +20 \| train loss 3\.82(?!87).*holds 31584 of 88896 weights
#    :show: 0 0
#    :mark: Step +20 \| train|holds
#
#    python -m tools.series run --probe pipeline@3 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --save_every 20 --log_every 5
#
# Each process holds its stage. But the loss is not quite what it was: 3.8294, not 3.8287.

# %% [markdown]
# One gradient for two copies, one norm for all
# ---------------------------------------------
#
# Two things in this trainer concern the whole model.
#
# The first is a weight. GPT's head has the weight of its token embedding (they are *tied*), so the
# first and the last stage each have a copy: 60,528 and 31,584 weights are 3,216 more than 88,896.
# The first stage has the gradient of the embedding, and the last one that of the head. The gradient
# of one tied weight is their sum. With different gradients, the copies drift apart.
#
# The second is the norm by which gradients are clipped. ``clip_grad_norm_`` sees the stage alone, so
# each stage would be scaled by another factor.
#
# .. lesson-diff:: pipeline
#    :edit: one-gradient-one-norm
#    :confirmed: 00149734b260
#
#    **The tied weight.** ``new_group`` makes a group of the two ranks. All ranks must call it, also
#    those outside. The copies have equal initial weights, since all ranks build the model from one
#    seed, and now equal gradients, so they stay equal.
#
#    **The norm.** Squares of norms add up. The tied weight counts once, on the first stage. The
#    norm comes after the sum of its gradients: the norm of a sum is not the sum of norms.
#
# .. run::
#    :expect: (?s)Step +20 \| train loss 3\.8287.*20 all-reduces of 3216 numbers
#    :show: 0 0
#    :mark: Step +20 \| train|all-reduces
#
#    python -m tools.series run --probe pipeline@4 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --save_every 20 --log_every 5
#
# The loss is 3.8287 again.

# %% [markdown]
# One checkpoint of all stages
# ----------------------------
#
# The checkpoint of ``pipeline@4`` has the stage of the process that wrote it, so the rest of the
# model is lost.
#
# .. lesson-diff:: pipeline
#    :edit: one-checkpoint
#    :confirmed: 5ed3f479788a
#
#    **Saving.** Each rank sends what it has: weights by name, and the optimizer's state by number.
#    These numbers are the same on all ranks, because each optimizer has all weights, also those on
#    ``meta``. So the parts of all stages make up one file, in the format of :doc:`5b_robust`.
#
#    **Loading** comes before the memory is freed: each rank loads the whole checkpoint into host memory,
#    and keeps its part. ``pop`` drops the state of the others.
#
#    **Loading runs a batch**, for dropout. In torch 2.9, the first call of a schedule makes a
#    forward pass to find the shapes, and draws from the generator. The generator's state, loaded
#    afterwards, undoes this draw.
#
# DDP reads this file, and this script reads DDP's. Here DDP trains 20 steps. A pipeline of four
# stages resumes from its checkpoint, and so does DDP on two processes:
#
# .. run::
#    :expect: (?s)Resuming after step 20.*pipeline.pt from ddp.pt: weights \d\.\de-0[678]
#    :mark: Resuming|weights
#
#    echo --data LICENSE --model gpt-nano --n_layer 4 --block_size 16 --learning_rate 1e-3 --min_learning_rate 1e-3 > options
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main $(cat options) --total_steps 20 --checkpoint_path ddp.pt | tail -n 1
#    cp ddp.pt pipeline.pt
#    torchrun --standalone --nproc_per_node=4 -m parallel.pipeline $(cat options) --total_steps 40 | grep -v val
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main $(cat options) --total_steps 40 --checkpoint_path ddp.pt | grep -v val
#    python docs/labs/distance.py ddp.pt pipeline.pt
#
# A failure of one stage stops all, and torchrun resumes from the last whole save (:doc:`5b_robust`).

# %% [markdown]
# The bubble
# ----------
#
# Let a stage compute one micro-batch in the time *t*, forward and backward together. A stage with
# *M* of them computes for *M t*. The last of *S* stages begins *S* − 1 forward passes after the
# first, and the first ends *S* − 1 backward passes after the last. So the step takes (*M* + *S* −
# 1) *t*, and each stage waits for (*S* − 1) / (*M* + *S* − 1) of it. This share is called the
# *bubble*.
#
# The lab runs PyTorch's schedules on four ranks, and notes when each computes. A rank sleeps in
# place of computing, so that four of them do not compete for two cores:
#
# .. run::
#    :expect: (?s)GPipe.*1F1B.*Interleaved1F1B
#    :lines: 1 1
#    :alone:
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=4 -m docs.labs.bubble --json events.jsonl
#    cat events.jsonl

# %%
import json

import lab

log = lab.run(
    "OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=4 -m docs.labs.bubble --json events.jsonl",
    "cat events.jsonl",
)
events = [json.loads(line) for line in log.split("\n") if line.startswith("{")]
CASES = ("GPipe", 4), ("GPipe", 8), ("1F1B", 8), ("Interleaved1F1B", 8)

figure, axes = lab.picture(
    "One step of four ranks, four times. In each, the first rank begins and ends the step, and the "
    "others begin later and end earlier. With eight micro-batches, all wait less than with four.",
    height=6.4, rows=4, columns=1, sharex=True,
)
for panel, (schedule, count) in zip(axes, CASES, strict=True):
    for event in events:
        if (event["schedule"], event["micro_batches"]) == (schedule, count):
            color = lab.COLORS[event["kind"] == "backward"]
            width = event["end"] - event["start"]
            light = event["stage"] > 3  # the second stage of a rank
            panel.barh(
                event["rank"], width, 0.8, event["start"], color=color, alpha=0.55 if light else 1)
            center = event["start"] + width / 2
            if (schedule, count) in CASES[::2]:  # the page grows with each number
                panel.text(center, event["rank"], event["number"], ha="center", va="center", size=6)
    panel.set(yticks=range(4), ylabel="rank", title=f"{schedule}, {count} micro-batches")
    panel.title.set(fontsize=10, ha="left", x=0)
    panel.invert_yaxis()
axes[-1].set(xlabel="milliseconds since the step began")
patches = [axes[0].barh(0, 0, color=color) for color in lab.COLORS[:2]]
figure.legend(patches, ["forward", "backward"], loc="outside upper right", ncols=2)

# %% [markdown]
# - **GPipe** keeps the activations of all micro-batches until their backward passes. This is what
#   "kept" counts.
# - **1F1B** (*one forward, one backward*) starts the backward pass of a micro-batch as soon as it
#   can. The bubble is that of GPipe. But a stage keeps at most as many micro-batches as there are
#   stages from it to the last. So *M* can grow without more memory.
# - **Interleaved 1F1B** gives each of *S* ranks two shorter runs of blocks: rank 0 has stages 0 and 4.
#   The bubble is (*S* − 1) / (2 *M* + *S* − 1). It sends over 2 *S* − 1 borders instead of *S* − 1,
#   and keeps more activations.
#
# The measured bubble is larger than the formula, because messages take time, too.

# %% [markdown]
# What it costs
# -------------
#
# - **Waiting** in the bubble, and for the slowest stage. Micro-batches cannot be arbitrarily small,
#   because small products use a GPU badly.
# - **Messages.** At each border between stages, each token's activations travel forward and their
#   gradients back: two numbers per token and channel, however many weights a stage has. FSDP sends
#   up to three numbers per weight. So a pipeline suits slow links, for example between nodes.
# - **Memory.** A stage's weights, gradients and optimizer state, and the activations of up to *S*
#   micro-batches. Not all stages are equal: the first keeps most activations, and with a large
#   vocabulary the last has most work.
# - **Logits.** By default, a schedule also returns the outputs of the last stage, so it keeps the
#   logits of the whole batch until the next one begins.
#
# A pipeline can be combined with DDP or FSDP: with 8 processes, two groups of four stages each train
# on half of the batch, and ranks with the same stage average their gradients.
#
# Nothing on this page was measured on a GPU.

# %% [markdown]
# What could go wrong
# -------------------
#
# **Gradients are too large or too small by a constant factor.** The loss is a sum, and the schedule
# divides by the number of micro-batches, or the loss is a mean and it does not. AdamW hides the
# factor, and so does clipping, if it always clips (`torchtitan#2972
# <https://github.com/pytorch/torchtitan/issues/2972>`__). Compare with one process and SGD.
#
# **"Received data size doesn't match expected size", or "Expected input batch_size (4) to match
# target batch_size (3)".** The batch is larger, or smaller, than the first one, for which the stages
# made their buffers. Give all batches one size: drop the last, smaller one.
#
# **"step() requires gradients to be enabled for backward computation".** A validation calls ``step``
# under ``torch.no_grad()``. Call ``eval``.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: parallel_pipeline
#    :next: :doc:`parallel_context`, where each process has a slice of each sequence
#    :also: torch.distributed.pipelining <torch.distributed.pipelining>, torch.distributed.send, torch.distributed.new_group
#
#    You can now cut a model into stages, and say how many micro-batches it takes to keep them busy.
#
#    .. fold:: A pipeline has 8 stages. How many micro-batches keep the bubble below 10 %?
#
#       7 / (*M* + 7) < 0.1, so *M* > 63: 64 micro-batches.
#
#    .. fold:: With 1F1B, the first of 8 stages keeps 8 micro-batches and the last keeps one. Why?
#
#       The first computes 8 forward passes before the first gradient comes back to it. The last one
#       can start backward directly after forward.
