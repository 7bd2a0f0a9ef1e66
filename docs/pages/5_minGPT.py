# %% [markdown]
"""
minGPT training
===============
"""

# %% [markdown]
# **You will be able to** train a GPT on your own text, on a laptop or on a cluster, and to say what
# each part of its model does.
#
# **You need** the script of :doc:`4_multinode`.
#
# A *GPT* is a model that predicts the next token of a text. A *token* is a piece of text, here one
# character, which the model knows by a number. All the tokens that a model knows are its
# *vocabulary*.
#
# The model is in ``mingpt/model.py``. Its trainer, ``mingpt/trainer.py``, is ``multinode.py`` with
# eleven edits. By default it trains on the source text of the modules of Python's standard library.
# Here it trains for 60 steps, not 2,000:
#
# .. run::
#    :expect: val loss [1-4]\.\d+ over 32,768 tokens
#    :mark: val loss
#
#    {mingpt} --total_steps 60 --eval_every 30 --log_every 10 --warmup_steps 20
#    python -m mingpt.sample --prompt "def " --count 120
#
# The validation loss is the loss of a text that the model does not train on. It may be lower than
# the training loss above it, which is that of a single batch. :doc:`5a_exact` explains the rest of
# both lines. ``mingpt.sample`` lets the model write: it draws a character from the prediction,
# appends it, and predicts again. After 60 steps, the model knows little more than which characters
# are frequent.
#
# The first edit is here, the other ten on the next four pages:
# :doc:`5a_exact`, :doc:`5b_robust`, :doc:`5c_fast` and :doc:`5d_gpus`.

# %% [markdown]
# The model
# ---------
#
# The model is GPT-2. Its input is a tensor of token numbers, ``[batch, time]``. ``targets`` has the
# same shape and is one token ahead.
#
# .. literalinclude:: ../../mingpt/model.py
#    :pyobject: GPT.forward
#    :dedent: 4
#
# ``wte`` holds one vector per token of the vocabulary, and ``wpe`` one per position, so their sum
# says which token it is, and where. The blocks transform these sums, and ``lm_head`` turns each
# result into one score, a *logit*, for every token that could come next. ``cross_entropy`` compares
# these scores with the target. (``past`` is only used to write text.)
#
# .. literalinclude:: ../../mingpt/model.py
#    :pyobject: Block
#
# A block adds two things to each vector: what attention finds in this token and earlier ones, and
# what the MLP computes from the vector alone. Before attention and before
# the MLP, a LayerNorm (``ln_1``, ``ln_2``) scales each vector to mean 0 and variance 1, then
# applies a learned factor and offset.
#
# .. literalinclude:: ../../mingpt/model.py
#    :pyobject: CausalSelfAttention
#
# Only attention lets tokens see each other. ``c_attn`` computes three vectors per token: a query, a
# key and a value. Attention compares a token's query with the keys of all tokens, and adds up their
# values, weighted by how well each key matches. ``is_causal`` hides all later tokens, because
# otherwise the model could look up its targets. Each *head* does this with its own part of the
# vectors, and ``c_proj`` mixes the results of the heads. In training, *dropout* sets a random part
# of the activations to 0, so that the model does not rely on any single one.
#
# .. literalinclude:: ../../mingpt/model.py
#    :pyobject: MLP
#
# The MLP processes each token separately. It makes the vector four times as wide, applies GELU,
# which is a smooth ReLU, and restores the width.
#
# .. literalinclude:: ../../mingpt/model.py
#    :pyobject: GPT.__init__
#    :dedent: 4
#
# ``lm_head`` and ``wte`` share one matrix. A block's two ``c_proj`` layers start with smaller
# weights, so a deeper model adds no more to a vector. The default model, ``gpt-micro``, has 4
# blocks, vectors of 128 numbers and 0.8 million weights.

# %% [markdown]
# A model, a text, a configuration
# --------------------------------
#
# DDP also takes larger models, but ``multinode.py`` is tied to a linear layer, invented data and a
# mean squared error.
#
# .. lesson-diff:: mingpt
#    :edit: a-model-and-a-text
#    :confirmed: 1bf241f7db4f
#
#    The trainer passes ``source`` and ``targets`` to the model and gets the loss back, summed over
#    the tokens. AdamW replaces SGD, and ``parameter_groups`` exempts biases and LayerNorm's factors
#    from weight decay.
#
#    ``data.load`` turns the text into token numbers. The first process of each node writes them to
#    a file, which then all processes map into memory.
#
#    ``args`` now holds all options of the command line (``mingpt/config.py``). ``mingpt/main.py``
#    calls ``worker(args)``, and ``args.build`` makes the model.
#
# The stages of this lesson are ``mingpt@1`` to ``mingpt@11``. These pages run most of them with the
# smallest model, ``gpt-nano``, on this project's file ``LICENSE``:
#
# .. run::
#    :expect: Epoch +1 \| loss [3-5]\.
#    :mark: Epoch +\d \| loss
#
#    python -m tools.series run mingpt@1 --data LICENSE --model gpt-nano --block_size 16 --total_steps 2 --save_every 1
#
# The loss is the mean cross-entropy per character, up to some padding. This text has 67 different
# characters, so guessing costs ln 67 = 4.20. (At this stage ``--total_steps 2`` still means two
# epochs.)

# %% [markdown]
# A training to the end
# ---------------------
#
# A complete training run was recorded once. The model wrote this after its last step:
#
# .. run::
#    :expect: def
#    :show: 40 0
#    :lines: 1 2
#    :elsewhere: recorded once, because it takes long
#    :timeout: 3000
#
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main --block_size 128 --batch_size 24 --total_steps 5000 --learning_rate 4e-3 --weight_decay 0.1 --checkpoint_path trained.pt > training.txt
#    python -m mingpt.sample --checkpoint_path trained.pt --prompt "def " --count 600
#    cat trained.jsonl

# %%
import json

import lab

log = lab.run(
    "torchrun --standalone --nproc_per_node=2 -m mingpt.main --block_size 128 --batch_size 24 --total_steps 5000 "
    "--learning_rate 4e-3 --weight_decay 0.1 --checkpoint_path trained.pt > training.txt",
    'python -m mingpt.sample --checkpoint_path trained.pt --prompt "def " --count 600',
    "cat trained.jsonl",
)
lines = [json.loads(line) for line in log.splitlines() if line.startswith('{"')]
curves = {
    kind: [(line["step"], line[f"{kind}_loss"]) for line in lines if f"{kind}_loss" in line]
    for kind in ("train", "val")
}
figure, axes = lab.picture(
    "Loss over steps of the recorded training. It ends at "
    f"{curves['train'][-1][1]:.2f} for a training batch and {curves['val'][-1][1]:.2f} for the "
    "validation text."
)
axes.plot(*zip(*curves["train"], strict=True), label="training, one batch")
axes.plot(*zip(*curves["val"], strict=True), "o", label="validation")
axes.set(xlabel="step", ylabel="loss per character")
axes.legend()

# %% [markdown]
# At the end the validation loss is above the training loss, because part of what the model has
# learned holds only for its training text. (On Shakespeare, another text, nanoGPT's README gives a
# validation loss per character of 1.47 after 3 minutes on an A100, and 1.88 on a CPU.)
#
# To train on your own text, pass ``--data`` with a file or a URL. ``--help`` lists every option. A
# *preset* sets many options at once and comes first, as in ``-m mingpt.main gpu``. The presets
# ``laptop``, ``gpu``, ``8gpus`` and ``nodes`` are named after the machine that they suit.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 5_minGPT
#    :next: :doc:`5a_exact`, which starts from the stage ``mingpt@1``
#    :also: torch.nn.functional.cross_entropy, torch.nn.functional.scaled_dot_product_attention, torch.nn.LayerNorm
#
#    You can now train a GPT on your own text, and say what attention, the MLP and ``lm_head`` do.
#
#    .. fold:: Your vocabulary has 67 characters. Which loss do you expect before the first step?
#
#       About ln 67 = 4.20. The initial weights are small, so every character gets about the same
#       probability. A much higher first loss points to a mistake in the initialization.
#
#    .. fold:: You leave out ``is_causal``. What happens to the loss, and to the text that the model writes?
#
#       The loss falls far lower, because each position can look up the next token in the input. The
#       text is worse, because there is no next token to look up when the model writes.
