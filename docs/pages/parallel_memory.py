# %% [markdown]
"""
Memory: what fills a GPU, and activation checkpointing
======================================================
"""

# %% [markdown]
# **You will be able to** compute the memory of a training step before you have the GPU, and to trade
# a part of it for time.
#
# **You need** the trainer of :doc:`5d_gpus`.
#
# A step keeps four things: the weights, their gradients, the optimizer's state, and the
# *activations*, which are the results in ``forward()`` that ``backward()`` needs. ``memory.py``
# counts them for this trainer's model, with 4 sequences of 64 tokens in fp32 and without dropout,
# and computes them by formulas. A step needs at most their sum, besides temporary tensors and the
# memory of the library itself:
#
# .. run::
#    :expect: activations +counted +([\d,]+) +computed +\1
#    :mark: activations
#
#    python docs/labs/memory.py | sed -n 1,5p
#
# The output is in bytes. The formulas count numbers, of 4 bytes each. A GPT with *L* blocks of
# width *C*, *h* heads, a vocabulary of *V* and contexts of *T* tokens has 12 *LC*\ :sup:`2` + 13
# *LC* + (*V* + *T* + 2) *C* weights. The gradients are as many, and AdamW's state twice as many. So
# all three take 16 bytes per weight, whatever the batch.
#
# The activations grow with the batch. A block keeps 16 *C* + *h* + 4 numbers per token:
#
# - 3 *C*: the inputs of the two ``LayerNorm`` and of attention's ``c_proj``, and 2 *C*: the outputs
#   of the ``LayerNorm``;
# - 3 *C*: queries, keys and values;
# - 8 *C*: what goes into ``gelu``, and what comes out;
# - *h* + 4: the logarithm of softmax's sum per head, and the means and deviations of the two
#   ``LayerNorm``.
#
# (The scores of attention are missing, because ``scaled_dot_product_attention`` computes them
# again.) After the blocks, the model keeps 2 *C* + 2 numbers and *V* log-probabilities per token,
# and a copy of ``lm_head``'s weight, with *V* padded to a multiple of 64. The rest is a few indices.

# %% [markdown]
# Computing activations twice
# ---------------------------
#
# .. lesson-diff:: checkpoint_activations
#    :edit: compute-again
#    :confirmed: 1ceec0518510
#
#    :torch:`checkpoint <torch.utils.checkpoint.checkpoint>` keeps only a block's input. When
#    ``backward()`` reaches the block, it computes the block again, with the same random state, so
#    that dropout drops the same units. It frees a block's activations before it reaches the next
#    block, so only one block has them.
#
# Then a block keeps *C* numbers per token. ``memory.py`` counts that, too:
#
# .. run::
#    :expect: activations +counted +([\d,]+) +computed +\1
#    :mark: activations
#
#    python docs/labs/memory.py | tail -n 5
#
# The result is the same, bit for bit, with dropout as well:
#
# .. run::
#    :expect: equal, bit for bit
#    :mark: equal, bit
#
#    echo --data LICENSE --model gpt-nano --block_size 16 --dropout 0.2 --total_steps 20 > options
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main $(cat options) | tail -n 1
#    torchrun --standalone --nproc_per_node=2 -m parallel.checkpoint_activations $(cat options) | tail -n 1
#    python docs/labs/same.py mingpt.pt checkpoint_activations.pt | tail -n 1
#
# The price is at most a second ``forward()``. ``backward()`` computes twice as much as
# ``forward()``, so that is a third more arithmetic. (Without dropout, the second ``forward()``
# stops before the block's last product, whose result no one needs.) On this CPU, with a small
# model:
#
# .. run::
#    :expect: a step takes 1\.[1-7]\d times as long
#    :mark: times
#    :alone:
#
#    python docs/labs/memory.py time

# %% [markdown]
# While a step runs
# -----------------
#
# The four parts are not all there at the same time. The lab notes what the step holds after each
# operation:

# %%
import re

import lab

log = lab.run("python docs/labs/memory.py course")
found = re.findall(r"(\w+) +(forward|backward) +at most ([\d.]+) MB\n([\d. ]+)", log)

figure, axes = lab.picture(
    "What a step holds while it runs. "
    + "; ".join(f"{name}, {part}: at most {most} MB" for name, part, most, _ in found),
    height=2.6,
)
for name, part, _, course in found:
    plain = name == "trainer"
    held = [float(size) for size in course.split()]
    start = 0 if part == "forward" else 1
    times = [start + at / len(held) for at in range(len(held))]
    label = "everything kept" if plain else "checkpoints"
    axes.plot(times, held, color=lab.COLORS[not plain], label=label if start == 0 else None)
axes.axvline(1, color="gray", linewidth=1)
axes.set(ylim=(0, 21), ylabel="MB")
axes.set_xticks((0.5, 1.5), ("forward()", "backward()"))
axes.tick_params(axis="x", length=0)
figure.legend(loc="outside upper right", ncols=2)

# %% [markdown]
# A step begins with the weights and the optimizer's state, 9.8 MB. ``forward()`` adds the
# activations. ``backward()`` frees them block by block and adds the gradients, so the most that the
# step holds is less than the sum of the parts. With checkpoints, ``forward()`` adds little, and the
# peak is near the end of ``backward()``, when almost all gradients are there and one block is
# computed again.

# %% [markdown]
# Large models
# ------------
#
# This table applies the formulas to AdamW in fp32, one sequence of 2,048 tokens per GPU and GPT-2's
# vocabulary. (The largest has the depth and width of Llama 3 405B.) The last column includes the
# block that ``backward()`` computes again:
#
# .. run::
#    :expect: 405B
#    :mark: 124M|405B
#
#    python docs/labs/memory.py large
#
# Under bf16 autocast, a block's activations shrink to just over half, and autocast's copies add 2
# bytes per weight. The *V* numbers per token and the blocks' inputs stay fp32. (A GPU keeps a
# second copy of the *V* numbers, in bf16: :doc:`5d_gpus`.)
#
# "When the memory is full" in :doc:`5d_gpus` lists what to try first. Of that list, only sharding
# makes weights, gradients and state smaller (:doc:`parallel_zero`, and :doc:`parallel_fsdp` with a
# library). A 6.7B model has 107 GB of them, so GPUs of 80 GB must share them. Nothing on this page
# was measured on a GPU.

# %% [markdown]
# What could go wrong
# -------------------
#
# **"CUDA out of memory" all the same.** Activations are not the largest part, or most of them are
# the log-probabilities: *V* numbers per token, which no block's checkpoint covers. For these,
# checkpoint ``lm_head`` and the loss per chunk of tokens.
#
# **Other losses than before.** A block's side effects now happen twice, such as BatchNorm's update
# of its averages. A generator other than torch's default one draws new numbers.
#
# **A warning about** ``use_reentrant``. Pass ``False``, as here. The older way needs inputs that
# require gradients, and does not work with DDP's ``find_unused_parameters``.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: parallel_memory
#    :next: :doc:`parallel_zero`, which divides the other three parts among the processes
#    :also: torch.autograd.graph.saved_tensors_hooks
#
#    You can now say what fills a GPU, and which remedy makes which of the four smaller.
#
#    .. fold:: You double the width of a model. Which part grows how much?
#
#       A block's weights, gradients and state grow fourfold, because it has 12 *C*\ :sup:`2`
#       weights; its activations double. The embeddings double, and the log-probabilities stay.
#
#    .. fold:: Why not checkpoint the whole model as one?
#
#       Then ``backward()`` computes the model again and keeps everything at once: as much as
#       without checkpoints. With a checkpoint per block, it keeps one block's activations at a time.
