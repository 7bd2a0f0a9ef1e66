# %% [markdown]
"""
Exact training
==============
"""

# %% [markdown]
# **You will be able to** resume a run exactly, to get the same losses with any number of processes,
# up to rounding, and to validate without five common mistakes.
#
# **You need** the stage ``mingpt@1`` of :doc:`5_minGPT`: ``multinode.py`` with a GPT in it.

# %% [markdown]
# Counting in steps
# -----------------
#
# ``mingpt@1`` counts in epochs, which are passes over the training text. A pass over the default
# text has about 66,000 samples, and until it ends, no loss is printed and nothing is saved.
#
# .. lesson-diff:: mingpt
#    :edit: count-in-steps
#    :confirmed: 46e4c81acced
#
#    A step is one update of the weights. ``_run_step`` replaces ``_run_epoch``, and
#    ``--save_every`` counts steps.
#
#    ``StepLoader`` replaces ``DistributedSampler``, which cannot start in the middle of an epoch.
#    On every rank it seeds a random generator with the seed and the step, draws the samples of all
#    processes, and takes this rank's share. A sample may begin anywhere in the training text, so
#    samples can overlap.
#
#    The step fixes the samples, so a :term:`checkpoint` keeps the position in the data as one
#    integer. A resumed run takes the same samples as an undisturbed one, even with another number
#    of processes.
#
#    ``--batch_size`` is now the :term:`global batch`: 12 sequences per step, shared by all
#    processes. In the earlier scripts it counted the samples of one process.
#
# The first of these three runs is undisturbed. The second ends after step 2, and the third resumes
# from its ``mingpt_2.pt``:
#
# .. run::
#    :expect: Step +4 \| loss 3[\s\S]*equal, bit for bit
#    :mark: Resuming|bit for bit
#
#    python -m tools.series run mingpt@2 --data LICENSE --model gpt-nano --block_size 16 --total_steps 4 --save_every 2 --checkpoint_path undisturbed.pt
#    python -m tools.series run mingpt@2 --data LICENSE --model gpt-nano --block_size 16 --total_steps 2 --save_every 2
#    python -m tools.series run mingpt@2 --data LICENSE --model gpt-nano --block_size 16 --total_steps 4 --save_every 2
#    python docs/labs/same.py undisturbed.pt mingpt_2.pt | tail -n 1
#
# Steps 3 and 4 have the losses of the undisturbed run, and the checkpoints are equal.

# %% [markdown]
# Reporting every so often
# ------------------------
#
# ``mingpt@2`` prints a line per step. Each line costs an :term:`all-reduce`, and reading the loss
# makes the CPU wait for the GPU.
#
# .. lesson-diff:: mingpt
#    :edit: report-every-so-often
#    :confirmed: 0698449def96
#
#    A line is due every ``--log_every`` steps, and after the last. ``is_due`` depends only on the
#    number of the step, so either all ranks enter ``all_reduce`` or none does.
#
#    ``Metrics`` prints the line and appends the same numbers to a ``.jsonl`` file beside the
#    checkpoint. ``tokens/s`` counts the tokens of all ranks since the last line. ``computing`` is
#    the share of the whole run not spent waiting for data, so it includes waits for other ranks
#    (:doc:`where_the_time_goes`).
#
# .. run::
#    :expect: Step +20 \| train loss
#    :mark: train loss
#
#    python -m tools.series run mingpt@3 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --log_every 5

# %% [markdown]
# Validating exactly
# ------------------
#
# Each loss above comes from only 12 sequences, so it jumps: between steps 5 and 10 it rises. It
# also says nothing about text that the model does not train on.
#
# .. lesson-diff:: mingpt
#    :edit: validate-exactly
#    :confirmed: 6d44103704f4
#
#    ``_validate`` computes the loss of ``--val_tokens`` tokens at the beginning of the text's last
#    tenth, on which the model never trains. It avoids five common mistakes:
#
#    * *Splitting the samples, not the text.* Samples overlap, so a validation sample could share
#      all but one character with a training sample.
#    * *Leaving dropout on.* ``eval`` turns it off.
#    * *Drawing samples at random.* Two validations of the same weights would differ. Here the
#      samples are always the same.
#    * *Averaging over batches.* The last batch is smaller, so its tokens would count more. Here the
#      loss is summed over tokens, and the last batch is filled up with ``PADDING``, which is −100,
#      the target that ``cross_entropy`` ignores by default.
#    * *Validating on rank 0 only.* Rank 0 would wait in ``all_reduce`` for the others, or receive
#      their next gradients instead. Here every rank validates its share.
#
# .. run::
#    :expect: val loss \S+ over 100 tokens
#    :mark: val loss
#
#    python -m tools.series run mingpt@4 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --log_every 10 --eval_every 10 --val_tokens 100
#
# If both ranks counted all samples, the line would say 200 tokens. (A hundred tokens are too few to
# judge a model.)

# %% [markdown]
# Clipping, warm-up and cosine
# ----------------------------
#
# So far the learning rate is constant. If it is too high, the first steps make the model worse:
#
# .. run::
#    :expect: Step +20 \| train loss
#    :mark: Step +5 \|
#
#    python -m tools.series run mingpt@4 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --log_every 5 --learning_rate 0.1
#
# In step 5 the loss is above 6, although guessing would cost only 4.2.
#
# .. lesson-diff:: mingpt
#    :edit: clip-and-schedule
#    :confirmed: 88dd183130d5
#
#    The learning rate first rises linearly over ``--warmup_steps``, because AdamW's averages come
#    from few gradients at first, so its steps are unreliable. Then the rate falls along half a
#    cosine, because large steps would jump around the minimum. The rate follows from the step and
#    ``--total_steps``, so no checkpoint needs the state of a scheduler.
#
#    One huge gradient spoils AdamW's averages for many steps. So ``clip_grad_norm_`` scales down a
#    gradient whose norm is above ``--grad_clip``. After ``backward()`` all ranks have the same
#    averaged gradient, so they compute the same norm without a collective.
#
# .. run::
#    :expect: Step +20 \| train loss
#    :mark: Step +5 \|
#
#    python -m tools.series run mingpt@5 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --log_every 5 --learning_rate 0.1 --warmup_steps 10
#
# With clipping and warm-up, step 5 is below the loss of guessing, the dashed line in the figure.
# (By step 20 the two runs are about equal.)

# %%
import math
import re

import lab

logs = {
    "constant rate": lab.run(
        "python -m tools.series run mingpt@4 --data LICENSE --model gpt-nano --block_size 16 "
        "--total_steps 20 --log_every 5 --learning_rate 0.1"
    ),
    "clipping and warm-up": lab.run(
        "python -m tools.series run mingpt@5 --data LICENSE --model gpt-nano --block_size 16 "
        "--total_steps 20 --log_every 5 --learning_rate 0.1 --warmup_steps 10"
    ),
}
curves = {
    name: [
        (int(step), float(loss))
        for step, loss in re.findall(r"Step +(\d+) \| train loss ([\d.]+)", log)
    ]
    for name, log in logs.items()
}
figure, axes = lab.picture(
    "Training losses at steps 5, 10, 15 and 20. "
    + "; ".join(
        f"{name}: {', '.join(f'{loss:.2f}' for _, loss in curve)}" for name, curve in curves.items()
    )
    + ". Guessing costs 4.20.",
    height=2.4,
)
for name, curve in curves.items():
    axes.plot(*zip(*curve, strict=True), "o-", label=name)
axes.axhline(math.log(67), color=lab.COLORS[2], linewidth=1, linestyle="--", label="guessing")
axes.set(xlabel="step", ylabel="training loss", xticks=[5, 10, 15, 20])
axes.legend()

# %% [markdown]
# One process or two
# ------------------
#
# A step's data, gradient and learning rate no longer depend on the number of processes, so the
# losses should not either. Here the finished trainer runs with two processes, then with one:
#
# .. run::
#    :expect: (?s)(Step +3 \| train loss \d\.\d\d).*\1
#    :mark: Step +\d \| \w+ loss
#
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main --data LICENSE --model gpt-nano --block_size 16 --total_steps 3 --log_every 1
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=1 -m mingpt.main --data LICENSE --model gpt-nano --block_size 16 --total_steps 3 --log_every 1 --checkpoint_path one.pt
#
# The losses agree up to rounding: one process adds the same numbers, but in another order. Such
# differences grow from step to step, and faster at a high learning rate. So to look for a mistake,
# compare the first steps of two runs, or use a low rate.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 5a_exact
#    :next: :doc:`5b_robust`
#
#    You can now resume a run in the middle of its data, compare runs with different numbers of
#    processes, and validate exactly.
#
#    .. fold:: You resume after step 1,000 with four processes instead of two. Which samples does the next step take?
#
#       It takes the same samples, because they follow from the seed and the step. Each rank takes a
#       quarter of them instead of a half.
#
#    .. fold:: You stop at step 1,000 of 2,000 and resume with ``--total_steps 4000``. What happens to the learning rate?
#
#       It jumps up. Without a warm-up, step 1,000 was halfway along the cosine and is now a quarter
#       of the way along, so the rate rises from about 50 % to about 85 % of its highest value.
