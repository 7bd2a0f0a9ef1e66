# %% [markdown]
"""
Local SGD: averaging the weights now and then
=============================================
"""

# %% [markdown]
# **You will be able to** train with far fewer messages than DDP, and to say what that changes in
# the result and in a checkpoint.
#
# **You need** the script of :doc:`4_multinode`.
#
# DDP sends all gradients at every step. On a slow network, such as Ethernet between nodes, a step
# may wait longer than it computes. *Local SGD* communicates less: each rank trains its own copy of
# the model, and every N steps the ranks average their weights.
#
# RETURNN calls this ``reduce_type = "param"``, and N is its ``param_sync_step``, for which its
# documentation recommends 100.

# %% [markdown]
# Averaging no gradients
# ----------------------
#
# .. lesson-diff:: local_sgd
#    :edit: average-no-gradients
#    :confirmed: 5e81e5f61afb
#
#    ``no_sync()`` sets this attribute while its block runs. Here it is set for the whole training.
#    DDP is still useful: its constructor broadcasts the weights of rank 0, so all copies begin
#    equal. It costs memory for one copy of the gradients, the :term:`buckets <bucket>`.
#
# .. run::
#    :expect: gradients its own
#    :mark: weights
#
#    python -m tools.series run --probe local_sgd@1 3 3
#
# ``--probe`` makes each process print what it did. The sums of the weights differ: these are two
# models, each trained on half of the data.

# %% [markdown]
# Averaging the weights
# ---------------------
#
# .. lesson-diff:: local_sgd
#    :edit: average-the-weights
#    :confirmed: df7ad1836553
#
#    ``all_reduce`` gives every rank the sum, so each rank divides its weights first. Both work in
#    place: ``detach()`` gives a tensor that shares its memory with the parameter.
#
#    All ranks count the same steps, so all reach the average together. The count begins at
#    ``epochs_run * len(train_data)``. A resumed run therefore averages at the same steps as an
#    undisturbed one, and the checkpoint does not need to hold the count.
#
# .. run::
#    :expect: 9 all-reduces of 20 numbers
#    :mark: weights
#
#    python -m tools.series run --probe local_sgd@2 3 3
#
# The model has 20 weights and a bias, so an average sends two messages. Of 96 steps, every tenth
# ends with one: 9 averages, where DDP needs 96. The sums of the weights are closer than before.
# They are not equal, because each rank has made 6 more steps alone.

# %% [markdown]
# Saving one model
# ----------------
#
# Local rank 0 of each node saves. But its weights are its own now. So is its momentum, which no step
# averages. Two nodes therefore save two models. After a restart, all ranks load one of these files,
# and what the other ranks had is lost. A killed run then ends differently from an undisturbed one:
#
# .. run::
#    :expect: (?m)^not equal
#    :status: 1
#    :show: 0 6
#    :mark: kill -9|Resuming|not equal
#
#    python docs/labs/kill.py 10 python -m tools.series run local_sgd@2 20 4
#    mv local_sgd_2.pt killed.pt
#    python -m tools.series run local_sgd@2 20 4 | tail -n 1
#    python docs/labs/same.py local_sgd_2.pt killed.pt
#
# The fix is to make the ranks equal at every save:
#
# .. lesson-diff:: local_sgd
#    :edit: save-one-model
#    :confirmed: 316e34a4957d
#
#    ``self.optimizer.state`` has a dictionary per parameter. For SGD it holds the momentum. Every
#    rank continues with the average of all momenta, so the file holds what every rank has. The
#    lines are above ``return``, because every rank must call ``all_reduce``.
#
# .. run::
#    :expect: (?m)^equal
#    :show: 0 6
#    :mark: kill -9|Resuming|equal, bit
#
#    OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 python docs/labs/kill.py 10 torchrun --standalone --nproc_per_node=2 --max-restarts=3 -m beyond.local_sgd 20 4
#    mv local_sgd.pt killed.pt
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m beyond.local_sgd 20 4 | tail -n 1
#    python docs/labs/same.py local_sgd.pt killed.pt
#
# The price: a save is now an average too. If you save more often, you get a slightly different
# model.

# %% [markdown]
# Is N = 1 the same as DDP?
# -------------------------
#
# With SGD, yes, up to rounding. An update is linear in the gradient, and so is the momentum. It
# makes no difference whether you average before the update or after it. Set N to 1, and compare:
#
# .. run::
#    :expect: weights [\d.]+e-(0[789]|1\d)
#    :show: 0 1
#    :mark: weights
#
#    sed 's/^SYNC_EVERY = 10/SYNC_EVERY = 1/' beyond/local_sgd.py > every_step.py
#    python docs/labs/forks.py 2 every_step.py multinode.py 10 10 | grep saved
#    python docs/labs/distance.py multinode_2.pt every_step_2.pt
#
# With Adam, no. Adam divides by the root of the mean squared gradient, which is not linear. Each
# rank computes these moments from its gradients alone. In this script, only a save averages them. In
# RETURNN, and in PyTorch's ``PeriodicModelAverager`` and ``PostLocalSGDOptimizer``, nothing does. Here is the same comparison
# with Adam:
#
# .. run::
#    :expect: weights [\d.]+e-0[1234]
#    :show: 0 1
#    :mark: weights
#
#    sed 's/SGD(.*)/Adam(model.parameters(), lr=1e-2)/' multinode.py > adam.py
#    sed 's/SGD(.*)/Adam(model.parameters(), lr=1e-2)/; s/= 10  #/= 1  #/' beyond/local_sgd.py > adam_1.py
#    python docs/labs/forks.py 2 adam.py adam_1.py 10 10 | grep saved
#    python docs/labs/distance.py adam_2.pt adam_1_2.pt

# %% [markdown]
# What it gains
# -------------
#
# This script trains with DDP and with N = 1, 8 and 100. The four take turns after each epoch:
#
# .. run::
#    :expect: every 100 \| loss
#    :alone:
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m docs.labs.sync_every 20
#
# The losses are those after the 5th and after the 20th epoch. The last column compares speeds with
# DDP's, as measured when this page was recorded.
#
# N = 1 gains nothing: it sends at every step, and two messages where DDP sends one. Larger N gain a
# lot, but this is the best case. The model is tiny: its step computes next to nothing, and most of the time is messages. If
# your step waits for messages a tenth of its time, you save a tenth at most.
#
# The losses hardly differ. This too is the best case: the problem is linear, and both ranks see the
# same kind of data. A deep model may lose accuracy as N grows, so compare its validation loss at
# several N before you choose one.
#
# Two limits. Buffers, such as the running means of batch normalisation, stay each rank's own:
# average them too, if your model has any. And by default Adam keeps its step count on the CPU,
# where NCCL cannot reduce it: pass ``fused=True``, and it is on the GPU.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_local_sgd
#    :next: :doc:`5_minGPT`
#
#    You can now average weights in place of gradients, resume exactly, and measure what it gains.
#
#    .. fold:: You move the averages in ``_save_checkpoint`` below ``return``. What happens?
#
#       Only the local rank 0 of each node calls ``all_reduce`` there. The others call another
#       collective. With several processes per node, the run hangs or fails.
#
#    .. fold:: N is 100, and an epoch has 32 steps. After which epoch does the first average come?
#
#       During the fourth: three epochs have 96 steps. The count continues across epochs. But each save
#       averages too, so with a save after the first epoch, that one is first.
#
#    .. fold:: Your model has 300 tensors. How many messages does an average send, and how would you send one?
#
#       It sends 300. Copy all weights into one tensor (``parameters_to_vector`` does that), average
#       it, and copy the result back. A message has a fixed cost, so one is faster. With a large N,
#       it matters less than for DDP.
