# %% [markdown]
"""
Exact training
==============
"""

# %% [markdown]
# **You will be able to** make a run that resumes exactly and whose losses do not
# depend on the number of processes, up to rounding, and to validate it without five common
# mistakes.
#
# **You need** the stage ``mingpt@1`` of :doc:`5_minGPT`: a GPT in the frame of ``multinode.py``.

# %% [markdown]
# Counting in steps
# -----------------
#
# ``mingpt@1`` counts in epochs, which are passes over the whole text:
#
# .. run::
#    :expect: Epoch +1 \| loss [3-5]\.
#    :show: 3 0
#    :mark: Epoch +\d \| loss
#
#    python -m tools.series run mingpt@1 --data LICENSE --model gpt-nano --block_size 16 --total_steps 2 --save_every 1
#
# A pass over this short text has 146 samples of 16 characters. One over the default text, Python's
# library, has about 66,000 of 64 characters. Until it ends, no loss is printed and nothing is
# saved. A pass over a larger text takes days.
#
# .. lesson-diff:: mingpt
#    :edit: count-in-steps
#    :confirmed: 46e4c81acced
#
#    A step is one update of the weights. ``_run_step`` does for a step what ``_run_epoch`` did for
#    an epoch, and ``--save_every`` counts steps.
#
#    ``DistributedSampler`` goes too, because it cannot start in the middle of an epoch.
#    ``StepLoader`` makes the data of a step a function of two integers, the seed and the step. It
#    seeds a random generator with both and draws the samples of all processes: pieces of the text
#    that begin anywhere, so two steps may draw overlapping ones. Each rank takes its share, in one
#    batch or, later, in several.
#
#    Three things follow. A :term:`checkpoint` needs one integer to say where in the data training
#    is. A resumed run takes the same samples as an undisturbed one. And the number of processes may
#    change between two runs.
#
#    ``StepLoader`` draws for all processes, so ``--batch_size`` has a new meaning. In the scripts
#    before, it counted the samples of one process. From here on it is the :term:`global batch`: 12
#    sequences per step, shared by all processes.
#
# .. run::
#    :expect: Step +4 \| loss 3
#    :mark: Step +\d \| loss
#    :lines: 1 1
#
#    python -m tools.series run mingpt@2 --data LICENSE --model gpt-nano --block_size 16 --total_steps 4 --save_every 2 --checkpoint_path undisturbed.pt
#    python -m tools.series run mingpt@2 --data LICENSE --model gpt-nano --block_size 16 --total_steps 2 --save_every 2
#    python -m tools.series run mingpt@2 --data LICENSE --model gpt-nano --block_size 16 --total_steps 4 --save_every 2
#    python docs/labs/same.py undisturbed.pt mingpt_2.pt | tail -n 1
#
# A loss per step, and a checkpoint every second step. A second run, not shown, has ``--total_steps
# 2`` and stops in the middle of the text. A third one resumes from its checkpoint ``mingpt_2.pt``:
#
# .. run::
#    :expect: equal, bit for bit
#    :mark: Resuming|bit for bit
#    :lines: 3 4
#
#    python -m tools.series run mingpt@2 --data LICENSE --model gpt-nano --block_size 16 --total_steps 4 --save_every 2 --checkpoint_path undisturbed.pt
#    python -m tools.series run mingpt@2 --data LICENSE --model gpt-nano --block_size 16 --total_steps 2 --save_every 2
#    python -m tools.series run mingpt@2 --data LICENSE --model gpt-nano --block_size 16 --total_steps 4 --save_every 2
#    python docs/labs/same.py undisturbed.pt mingpt_2.pt | tail -n 1
#
# Steps 3 and 4 have the losses of the undisturbed run, and the two checkpoints are equal.
#
# .. fold:: How a batch gets to the GPU
#
#    ``StepLoader`` also moves the batches to the device. A plain ``.to`` would make the CPU wait
#    until the GPU has done all its work so far. From *pinned* memory, which the system never moves,
#    and with ``non_blocking=True``, the GPU fetches a batch by itself. ``DataLoader`` workers would
#    gain nothing: drawing the batches of a small model takes 0.2 ms of its step of 48 ms
#    (``tools/bench/results/data_workers.txt``).

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
#    Only every ``--log_every`` steps is a line due. ``is_due`` looks at the number of the step
#    alone, so either all ranks enter ``all_reduce`` or none does.
#
#    ``Metrics`` prints the line and appends the same figures to a file beside the checkpoint, with
#    the suffix ``.jsonl``. ``tokens/s`` counts the tokens of all ranks since the last line.
#    ``computing`` is the share of the time in which training did not wait for data. (Waiting for
#    other ranks counts as computing: :doc:`where_the_time_goes` separates the two.) If it falls below
#    90 %, the log adds a warning.
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
# The loss in these lines is that of 12 sequences, so it jumps: between steps 5 and 10 it rises. And
# it says nothing about text that the model does not train on.
#
# .. lesson-diff:: mingpt
#    :edit: validate-exactly
#    :confirmed: 6d44103704f4
#
#    ``_validate`` computes the loss of the last tenth of the text, on which the model never trains.
#    It avoids five common mistakes. The first four change the number that models are chosen by. The
#    last one breaks the run:
#
#    * *Splitting the samples.* They overlap, so a validation sample could share all but one
#      character with a training sample. Here the text is split in two.
#    * *Leaving dropout on.* ``eval`` turns it off.
#    * *Drawing samples at random.* Two validations of the same weights would differ. Here the
#      samples are always the same.
#    * *Averaging over batches.* The last batch is smaller than the others, so its tokens would
#      count more. Here the loss is summed over tokens. The last samples are filled up with
#      ``PADDING``, which is −100, the target that ``cross_entropy`` ignores by default.
#    * *Validating on rank 0 only.* It would wait in ``all_reduce`` for the others, or receive their
#      next gradients instead. Here every rank validates its share.
#
# .. run::
#    :expect: val loss \S+ over 100 tokens
#    :mark: val loss
#
#    python -m tools.series run mingpt@4 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --log_every 10 --eval_every 10 --val_tokens 100
#
# From step 10 to step 20 the training loss falls and the validation loss does not. The training
# loss alone would not tell. (A hundred tokens are few: they are enough to show the edit, not to
# judge a model.)
#
# ``--val_tokens`` limits the validation; 0 means the whole tenth. A hundred tokens fill six samples
# of 16 and a part of a seventh, and two ranks share them. The line says 100: none is counted twice.

# %% [markdown]
# Clipping, warm-up and cosine
# ----------------------------
#
# The learning rate is constant so far. One that is too high throws the model off in its first
# steps:
#
# .. run::
#    :expect: Step +20 \| train loss
#    :mark: Step +5 \|
#
#    python -m tools.series run mingpt@4 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --log_every 5 --learning_rate 0.1
#
# After five steps the loss is above 6. Guessing would cost 4.2.
#
# .. lesson-diff:: mingpt
#    :edit: clip-and-schedule
#    :confirmed: 88dd183130d5
#
#    The learning rate rises in equal steps to its highest value over ``--warmup_steps``: at first
#    AdamW's averages come from few gradients, so its steps are unreliable. Then the rate falls
#    along half a cosine, because large steps would jump around the minimum. It is a function of the
#    step and of ``--total_steps``. So there is no scheduler whose state a checkpoint could forget.
#    But resume with the same ``--total_steps``, or the rate jumps.
#
#    One huge gradient spoils AdamW's averages for many steps. ``clip_grad_norm_`` scales a gradient
#    that is longer than ``--grad_clip`` down to this length. After ``backward()`` all ranks have
#    the same averaged gradient. They find the same length, and need no collective for it.
#
# .. run::
#    :expect: Step +20 \| train loss
#    :mark: Step +5 \|
#
#    python -m tools.series run mingpt@5 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --log_every 5 --learning_rate 0.1 --warmup_steps 10
#
# After five steps the loss is below that of guessing. The run shows clipping and warm-up together.
# (A rate of 0.1 is too high for this model all the same: at step 20 the two runs are about as
# good.)

# %% [markdown]
# One process or two
# ------------------
#
# The data of a step, its gradient and its learning rate no longer depend on the number of
# processes. So the losses should not either. Here the finished trainer runs with two processes,
# then with one:
#
# .. run::
#    :expect: (?s)(Step +3 \| train loss \d\.\d\d).*\1
#    :mark: Step +\d \| \w+ loss
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m mingpt.main --data LICENSE --model gpt-nano --block_size 16 --total_steps 3 --log_every 1
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=1 -m mingpt.main --data LICENSE --model gpt-nano --block_size 16 --total_steps 3 --log_every 1 --checkpoint_path one.pt
#
# They agree up to rounding: one process adds the same numbers in another order. They hardly fall,
# because the warm-up has just begun. (Three steps say nothing about speed: :doc:`5c_fast` compares
# it.)
#
# .. fold:: For how long do they agree?
#
#    That depends on the learning rate. At 10\ :sup:`-3`, the validation losses of 1, 2 and 4
#    processes agree to 5 · 10\ :sup:`-6` for a thousand steps. At the default, 8 · 10\ :sup:`-3`,
#    training is chaotic: even in 64 bits, one and two processes are less than 10\ :sup:`-13` apart
#    at step 100, and 10\ :sup:`-3` at step 300 (``tools/bench/results/soak.txt``). To look for a
#    mistake, compare the first steps of two runs, or take a low rate.

# %% [markdown]
# What could go wrong
# -------------------
#
# **A batch that cannot be shared.** Every rank takes equally many sequences, so the batch must be a
# multiple of the number of processes:
#
# .. run::
#    :expect: the nearest is 12
#    :status: 1
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m mingpt.main --batch_size 13 |& grep main.py:
#
# So far a run resumes exactly if it has no dropout, and loses the steps since its last checkpoint.

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
#       The same ones. The samples of a step follow from the seed and the number of the step, and
#       are drawn for all processes together. With four processes each takes a quarter of them,
#       with two a half.
#
#    .. fold:: You stop at step 1,000 of 2,000 and resume with ``--total_steps 4000``. What happens to the learning rate?
#
#       It jumps up. The rate is a function of the step and of ``--total_steps``. Step 1,000 was
#       halfway down the cosine and is now at a quarter of the way, so the rate rises from about 50
#       % to about 85 % of its range.
#
#    .. fold:: Clipping needs no collective under DDP. If each rank held only a part of the gradients, would it?
#
#       Yes. The length of the gradient is the root of the sum of all squares, and such a rank
#       knows only its part of that sum. The ranks would have to add up their sums first. Under DDP
#       every rank has the whole averaged gradient.
