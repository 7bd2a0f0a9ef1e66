# %% [markdown]
"""
Scaling the learning rate with the processes
============================================
"""

# %% [markdown]
# **You will be able to** scale the learning rate with the number of processes, and to say when it
# needs a warm-up.
#
# **You need** the script of :doc:`4_multinode`, and :doc:`batch_and_learning_rate`, which explains
# the linear rule: N times the batch, N times the rate.

# %% [markdown]
# Multiplying the rate
# --------------------
#
# ``--batch_size`` counts the samples of one process. So with twice the processes, an epoch has half
# as many updates of about the same size, and the loss falls less. Here ``forks.py`` trains on 1, 2
# and 4 ranks in turn:
#
# .. run::
#    :expect: (?s)loss 0\.\d+ .*loss 0\.\d+ .*loss 0\.[4-9]
#
#    python docs/labs/forks.py 1,2,4 multinode.py 4 4 | grep -E "rank|4 . loss"
#
# So the rate should grow with the number of processes:
#
# .. lesson-diff:: scale_lr
#    :edit: multiply-the-rate
#    :confirmed: ad93e063d161
#
#    ``load_train_objs`` runs after ``ddp_setup``, so the :term:`world size` is known.
#
# .. run::
#    :expect: (?s)loss 0\.1\d+ .*loss 0\.1\d+ .*loss 0\.1
#
#    python docs/labs/forks.py 1,2,4 beyond/scale_lr.py 4 4 | grep -E "rank|4 . loss"
#
# The losses of two and four processes are now close to that of one.

# %% [markdown]
# The same as a sum
# -----------------
#
# DDP gives the optimizer the *mean* of the gradients. A loop that calls ``all_reduce`` without
# dividing gives it their *sum*. With SGD without weight decay, the two
# differ only by a factor in the rate:
#
#    (lr · N) × mean of N gradients = lr × sum of N gradients
#
# To get the sum from DDP, multiply the loss by N, because DDP divides by N. This command does so in
# ``multinode.py``, and compares the result with this lesson's:
#
# .. run::
#    :expect: weights 0\.0e\+00, momenta [1-9]
#    :show: 0 1
#    :mark: weights
#
#    sed 's/loss.backward()/(loss * dist.get_world_size()).backward()/' multinode.py > sum.py
#    python docs/labs/forks.py 2 sum.py beyond/scale_lr.py 10 10
#    python docs/labs/distance.py sum_2.pt scale_lr_2.pt
#
# After 320 steps, every bit of the weights is the same. (The momenta differ: those of ``sum.py``
# are twice as large.) A factor of two changes only the exponent of a floating-point number, so it
# rounds nothing. With three processes, rounding would remain.
#
# So to port a script that sums its gradients for SGD, multiply its rate by N, and divide its weight
# decay by N.

# %% [markdown]
# AdamW hides the difference
# --------------------------
#
# The first two runs are ``multinode.py`` and ``sum.py`` with SGD. The last three are these two and
# this lesson's script, with AdamW:
#
# .. run::
#    :expect: (?s)multinode.py, 2 ranks:\nEpoch 10 . loss (\S+) .*\nsum.py, 2 ranks:\n(?!Epoch 10 . loss \1 ).*adamw.py, 2 ranks:\nEpoch 10 . loss (\S+) .*adamw_sum.py, 2 ranks:\nEpoch 10 . loss \2 .*scaled.py, 2 ranks:\n(?!Epoch 10 . loss \2 )
#    :mark: adamw
#
#    sed 's/loss.backward()/(loss * dist.get_world_size()).backward()/' multinode.py > sum.py
#    sed 's/SGD(/AdamW(/; s/, momentum=0.9//' multinode.py > adamw.py
#    sed 's/SGD(/AdamW(/; s/, momentum=0.9//' sum.py > adamw_sum.py
#    sed 's/SGD(/AdamW(/; s/, momentum=0.9//' beyond/scale_lr.py > adamw_scaled.py
#    python docs/labs/forks.py 2 multinode.py sum.py adamw.py adamw_sum.py adamw_scaled.py 10 10 | grep -E "rank|10 . loss"
#
# With AdamW, mean and sum give the same loss. Apart from weight decay and bias correction, AdamW's
# step is
#
#    lr × running mean of the gradients / (root of the running mean of their squares + eps)
#
# If the gradients are N times as large, so are the numerator and the root, and N cancels. Only
# ``eps`` (1e-8) does not scale: once gradients are not much larger than it, as in some layers of
# large models, the factor shows.
#
# - **Test a gradient with SGD**, because AdamW hides that your code scales gradients by a wrong
#   factor.
# - **AdamW does not hide a factor in the learning rate.** ``adamw_scaled.py`` trains faster than
#   ``adamw_sum.py``, because ``lr`` is outside of the fraction. With AdamW, many people multiply
#   the rate by the square root of N instead.

# %% [markdown]
# Warm-up
# -------
#
# `Goyal et al. 2017 <https://arxiv.org/abs/1706.02677>`__ raised the rate over the first five
# epochs, from that of one process to N times as much. ``warm_up.py`` adds this to a script, in the
# lines that ``diff`` shows. ``--deep`` takes a model with two hidden layers in place of the linear
# one. The base rate is then 0.05 instead of 0.001. Four processes train this model with three
# scripts: ``base.py`` has the rate of one process, ``scaled.py`` four times as much, and
# ``warm.py`` rises from the rate of ``base.py`` to that of ``scaled.py`` in five epochs.
#
# .. run::
#    :expect: (?s)total_iters=5.*Epoch  8 . loss 0\.0.*Epoch  8 . loss [\d.]*[1-9].*Epoch  8 . loss 0\.0
#    :show: 0 1
#    :mark: ^>|^\w+\.py|Epoch  8
#
#    python docs/labs/warm_up.py multinode.py --deep > base.py
#    python docs/labs/warm_up.py beyond/scale_lr.py --deep > scaled.py
#    python docs/labs/warm_up.py beyond/scale_lr.py --deep --epochs 5 > warm.py
#    diff scaled.py warm.py || true
#    python docs/labs/forks.py 4 base.py scaled.py warm.py 8 8 | grep -v saved
#
# - **The linear model** of the sections above needs no warm-up. The curvature of its loss is the same
#   everywhere, so a rate that is stable later is stable from the first step.
# - **The deeper model needs it.** At four times the rate its training breaks down,
#   because early on, the network changes too quickly for the linear rule (Goyal et al.).
# - **Scaling does not always pay.** Here the deeper model trains best with the rate of one process. The
#   linear rule is a first guess, so compare with the unscaled rate on your own model.

# %% [markdown]
# The rate is in the checkpoint
# -----------------------------
#
# ``optimizer.load_state_dict`` also restores the rate. Train on two processes, then resume on four:
#
# .. run::
#    :expect: 'lr': 0\.002,
#    :show: 0 1
#    :mark: 'lr'|Resuming
#
#    torchrun --standalone --nproc_per_node=2 -m beyond.scale_lr 5 5
#    torchrun --standalone --nproc_per_node=4 -m beyond.scale_lr 7 7
#    python -c "import torch; print(torch.load('scale_lr.pt')['optimizer']['param_groups'])"
#
# Four processes trained with 0.002, not 0.004. If the world size may change, as with torchrun's
# ``--nnodes=1:4``, set every ``"lr"`` in ``optimizer.param_groups`` to the new rate after loading.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_scale_lr
#    :next: :doc:`5c_fast`, which says when more processes are faster
#
#    You can now scale the rate, and test whether your model needs a warm-up.
#
#    .. fold:: A framework sums the gradients of 8 GPUs. Your DDP script uses SGD with the same rate. What happens?
#
#       DDP averages, so your steps are an eighth as long. Multiply the rate by 8.
#
#    .. fold:: You add gradient clipping to a norm of 1. Do mean and sum still differ by a factor in the rate only?
#
#       No. The norm of the sum is N times as large, so it is clipped more often. Clipped to 1, mean
#       and sum have the same length, so N times the rate makes steps N times as long.
