# %% [markdown]
"""
minGPT training
===============
"""

# %% [markdown]
# **You will be able to** train a GPT on a text of yours, on a laptop or on a cluster, and to say
# what each part of its model does.
#
# **You need** the script of :doc:`4_multinode`.
#
# So far the model was a linear layer with 21 weights. A *GPT* predicts the next token of a text. A
# *token* is a piece of text that the model knows by a number; here it is one character. The kinds
# of tokens that a model knows are its *vocabulary*.
#
# The model is in ``mingpt/model.py``, and its trainer, ``mingpt/trainer.py``, is ``multinode.py``
# with ten edits. You start it like any script of the series. By default it learns the source text
# of Python's standard library, so there is nothing to download. Here it trains for 60 of its 2,000
# steps:
#
# .. run::
#    :expect: val loss [1-4]\.\d+ over 32,768 tokens
#    :mark: val loss
#    :lines: 1 1
#
#    {mingpt} --total_steps 60 --eval_every 30 --log_every 10 --warmup_steps 20
#    python -m mingpt.sample --prompt "def " --count 120
#
# The training loss is that of one batch, and the validation loss that of a text that the model does
# not train on; :doc:`5a_exact` explains both, and the rest of the line.
#
# This page reads the model, shows the first edit, and ends with a training to the end. The other
# ten edits are on four pages. Read them in this order:
#
# :doc:`5a_exact`
#    counts in steps, reports, validates, and resumes in the middle of the data.
#
# :doc:`5b_robust`
#    saves while training continues, and stops when a scheduler asks for it.
#
# :doc:`5c_fast`
#    computes in 16 bits, accumulates gradients and sends fewer messages.
#
# :doc:`5d_gpus`
#    measures what a GPU gains, counts its memory, and repeats a run bit for bit.

# %% [markdown]
# The model
# ---------
#
# The model is GPT-2, and what follows is all that training needs of it. The input is a tensor of
# token numbers, ``[batch, time]``: each row is a piece of text. ``targets`` has the same shape and
# is one token ahead.
#
# .. literalinclude:: ../../mingpt/model.py
#    :pyobject: GPT.forward
#    :dedent: 4
#
# ``wte`` is a table with one vector per kind of token, and ``wpe`` one with a vector per position.
# Their sum tells a layer which token it sees, and where. The blocks transform these vectors. At the
# end ``lm_head`` turns each of them into one score per kind of token, its *logit*: the prediction
# of the next token. ``cross_entropy`` compares it with the target. So a text of 64 tokens is 64
# exercises. (``past`` is only used to write text, when earlier tokens need not be computed again.)
#
# .. literalinclude:: ../../mingpt/model.py
#    :pyobject: Block
#
# A block adds two things to each vector: what attention finds in earlier tokens, and what the MLP
# computes from the vector alone. It adds and never replaces, so in ``backward()`` the gradient also
# passes beside each block, unchanged. Before attention and before the MLP, a LayerNorm (``ln_1``,
# ``ln_2``) scales each vector to mean 0 and variance 1, then applies a learnt factor and offset.
#
# .. literalinclude:: ../../mingpt/model.py
#    :pyobject: CausalSelfAttention
#
# Attention is the only place where tokens see each other. ``c_attn`` computes three vectors per
# token: a query, a key and a value. Each token's query is compared with the key of every token. The
# better a key matches, the more of its token's value is added. ``is_causal`` hides all later
# tokens; otherwise the model could look up its targets. Each *head* does this with its own part of
# the vectors, and ``c_proj`` mixes the results of the heads. *Dropout* sets a random part of the
# activations to 0 in training, so that the model does not rely on any one of them.
#
# .. literalinclude:: ../../mingpt/model.py
#    :pyobject: MLP
#
# The MLP works on every token alone: it widens the vector fourfold, applies GELU, a smooth ReLU,
# and narrows it again. Two thirds of a block's weights are in its MLP.
#
# .. literalinclude:: ../../mingpt/model.py
#    :pyobject: GPT.__init__
#    :dedent: 4
#
# The constructor puts these together. ``lm_head`` and ``wte`` share one matrix, so similar tokens
# have similar vectors and similar scores. Weights start small. The two ``c_proj`` layers of each
# block start smaller, because every block adds their outputs to the same vector. The default,
# ``gpt-micro``, has 4 blocks, vectors of 128 numbers and 0.8 million weights. The largest,
# ``gpt2-xl``, has 48 blocks and 1.6 billion weights.

# %% [markdown]
# A model, a text, a configuration
# --------------------------------
#
# Nothing in the model mentions a device or a process: DDP takes any module. But ``multinode.py``
# builds its own linear layer, invents its data, and computes a mean squared error.
#
# .. lesson-diff:: mingpt
#    :edit: a-model-and-a-text
#    :confirmed: 95d9e3a94f88
#
#    The trainer no longer knows what it trains. It passes ``source`` and ``targets`` to the model
#    and gets the loss back, summed over the tokens. AdamW replaces SGD. With ``fused=True``, which
#    is in ``args.adamw``, few large operations update all weights. ``parameter_groups`` exempts
#    biases and LayerNorm's gains from weight decay.
#
#    ``data.load`` turns the text into token numbers. The first process of each node does that and
#    writes a file, while the others wait; then all map the file into memory. If that process fails,
#    every rank raises its error, because a rank that never learns of it would wait until a timeout.
#
#    Thirty settings are too many for arguments of ``__init__``. ``args`` has them all. Its fields
#    are the options of the command line, which is now in ``mingpt/main.py`` and
#    ``mingpt/config.py``; ``main.py`` calls ``worker(args)``, and ``args.build`` makes the model.
#    They are checked before the processes meet, so a mistake costs seconds.
#
# The stages of this lesson are ``mingpt@1`` to ``mingpt@11``. A few of their lines are in some
# stages only, until a later edit replaces them. To be quick, the pages run most stages with the
# smallest model, ``gpt-nano``, on a short text, the file ``LICENSE`` of this project:
#
# .. run::
#    :expect: Epoch +1 \| loss [3-5]\.
#    :mark: Epoch +\d \| loss
#
#    python -m tools.series run mingpt@1 --data LICENSE --model gpt-nano --block_size 16 --total_steps 2 --save_every 1
#
# A GPT learns, in the frame of ``multinode.py``. (This stage still counts in epochs, so
# ``--total_steps 2`` means two epochs here. The next page changes that.) The loss is the
# cross-entropy per character. This text has 67 kinds of characters, so guessing costs ln 67 = 4.20.

# %% [markdown]
# A training to the end
# ---------------------
#
# The figures above are of a few steps. A training of all its steps was recorded once, by this
# command, and is kept with the project:
#
# .. run::
#    :expect: def
#    :lines: 1 1
#    :elsewhere: recorded once, because it takes long
#
#    OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --standalone --nproc_per_node=2 --max-restarts=3 -m mingpt.main --block_size 128 --batch_size 24 --total_steps 5000 --learning_rate 4e-3 --weight_decay 0.1 --checkpoint_path trained.pt > training.txt
#    python -m mingpt.sample --checkpoint_path trained.pt --prompt "def " --count 600
#    cat trained.jsonl
#
# The training loss is noisy, because each point is the loss of one batch:

# %%
import json

import lab

log = lab.run(
    "OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --standalone --nproc_per_node=2 "
    "--max-restarts=3 -m mingpt.main --block_size 128 --batch_size 24 --total_steps 5000 "
    "--learning_rate 4e-3 --weight_decay 0.1 --checkpoint_path trained.pt > training.txt",
    'python -m mingpt.sample --checkpoint_path trained.pt --prompt "def " --count 600',
    "cat trained.jsonl",
)
lines = [json.loads(line) for line in log.splitlines() if line.startswith('{"')]
curves = {
    kind: [(line["step"], line[f"{kind}_loss"]) for line in lines if f"{kind}_loss" in line]
    for kind in ("train", "val")
}
minutes = (lines[-1]["time"] - lines[0]["time"]) / 60
figure, axes = lab.picture(
    f"Loss over steps of the recorded training, which took {minutes:.0f} minutes. It ends at "
    f"{curves['train'][-1][1]:.2f} for a training batch and {curves['val'][-1][1]:.2f} for the "
    "validation text."
)
axes.plot(*zip(*curves["train"], strict=True), label="training, one batch")
axes.plot(*zip(*curves["val"], strict=True), "o", label="validation")
axes.set(xlabel="step", ylabel="loss per character")
axes.legend()

# %% [markdown]
# At the end the validation loss is above the training loss: part of what the model has learnt holds
# only for the text that it trained on.
#
# ``mingpt.sample`` lets a model write: it draws a character from the prediction, appends it, and
# predicts again. The model of the first command on this page knows little after 60
# steps: which characters are frequent, and that lines are indented.
#
# .. run::
#    :expect: def
#    :lines: 2 2
#
#    {mingpt} --total_steps 60 --eval_every 30 --log_every 10 --warmup_steps 20
#    python -m mingpt.sample --prompt "def " --count 120
#
# The recorded model wrote this after its last step:
#
# .. run::
#    :expect: def
#    :show: 40 0
#    :lines: 2 2
#    :elsewhere: recorded once, because it takes long
#
#    OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --standalone --nproc_per_node=2 --max-restarts=3 -m mingpt.main --block_size 128 --batch_size 24 --total_steps 5000 --learning_rate 4e-3 --weight_decay 0.1 --checkpoint_path trained.pt > training.txt
#    python -m mingpt.sample --checkpoint_path trained.pt --prompt "def " --count 600
#    cat trained.jsonl
#
# To train on your own text, pass ``--data`` with a file or a URL. ``--help`` lists every option. A
# *preset* sets many options at once, such as the model and the batch size, and comes first, as in
# ``-m mingpt.main gpu``. The presets are ``laptop``, ``gpu``, ``8gpus`` and ``nodes``. You may use
# any preset on any machine.

# %% [markdown]
# What could go wrong
# -------------------
#
# **A mistake in an option.** The trainer checks all options before the processes meet, and prints
# one line per node:
#
# .. run::
#    :expect: cannot read --data
#    :status: 1
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m mingpt.main --data missing.txt |& grep main.py:

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 5_minGPT
#    :next: :doc:`5a_exact`, which starts from the stage ``mingpt@1``
#    :also: torch.nn.functional.cross_entropy, torch.nn.functional.scaled_dot_product_attention, torch.nn.LayerNorm
#
#    You can now train a GPT on a text of yours, and say what attention, the MLP and ``lm_head``
#    do.
#
#    .. fold:: Your vocabulary has 67 characters. Which loss do you expect before the first step?
#
#       About ln 67 = 4.20. The weights start small, so all scores are nearly equal and every
#       character gets about the same probability. A first loss far above that points to a mistake
#       in the initialization.
#
#    .. fold:: Attention without ``is_causal``: what happens to the loss, and to the text that the model writes?
#
#       The loss falls far lower than before, because each position can look up the next token in
#       the input. The text is worse: when the model writes, there is no next token to look up.
#
#    .. fold:: DDP wraps this model without any change. What could a model do that would prevent it?
#
#       It could leave out some parameters in some steps, for example a layer that only some inputs
#       use. Their gradients would never come, and DDP would raise an error at the next step. In
#       this GPT every token passes through every block.
