# %% [markdown]
"""
Local SGD by the clock: averaging every few seconds
===================================================
"""

# %% [markdown]
# **You will be able to** let the ranks of a job act by the clock, without hanging.
#
# **You need** the script of the lesson on averaging the weights every N steps.
#
# The right N depends on the speed of a step and of the network. Averages every T seconds adapt to
# both: if an average takes 1 s and T is 50 s, it costs about 2 % of the time on any machine.
#
# Clocks differ, however, if only by microseconds. If each rank reads its own, one finds that T
# seconds have passed, and calls ``all_reduce``. Another finds that they have not, and takes one
# more step. From then on their :term:`collectives <collective>` do not match.

# %% [markdown]
# Letting one clock decide
# ------------------------
#
# The clock of rank 0 decides, and a :term:`broadcast` tells the others:
#
# .. lesson-diff:: local_sgd_by_time
#    :edit: let-one-clock-decide
#    :confirmed: 62ae3441a528
#
#    A broadcast at each step would cost about as much as an average of this small model. So the
#    ranks ask the clock every ``SYNC_EVERY`` steps only. They count the same steps, so all of them
#    ask.
#
#    Every rank passes its own ``elapsed`` to ``broadcast``, which overwrites it with that of
#    rank 0. The time begins anew after each average. A save is one, too.
#
# .. run::
#    :expect: 64 broadcasts
#    :show: 0 5
#    :mark: probe
#
#    python -m tools.series run --probe local_sgd_by_time 20 20
#
# Of 640 steps, every tenth asks the clock: 64 broadcasts. The number of all-reduces depends on the
# speed of the machine. But both ranks have the same number, and end with the same weights. The
# script is started as before:
#
# .. run::
#    :expect: Epoch 50
#    :show: 0 2
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m beyond.local_sgd_by_time 50 10

# %% [markdown]
# If each rank reads its own clock
# --------------------------------
#
# On one machine, all ranks read nearly the same clock, so this mistake may stay hidden for a long
# time. Here is the script without the broadcast, and with a clock of rank 1 that is a second ahead:
#
# .. run::
#    :expect: distributed collective mismatch
#    :status: 1
#
#    sed 's/dist.broadcast(elapsed, src=0)/elapsed += dist.get_rank()/' beyond/local_sgd_by_time.py > own_clocks.py
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 own_clocks.py 50 10 2>&1 | grep -o 'Is there.*'
#
# Rank 1 sends its weights, and rank 0 the two numbers of its loss. Here gloo notices that the sizes
# differ, and aborts. Messages of equal size would mix without an error. NCCL does not compare
# sizes, so expect a hang there.

# %% [markdown]
# Two runs differ
# ---------------
#
# With N steps, a resumed run ends like an undisturbed one, bit for bit. With T seconds, two runs
# differ: the clock decides after which steps the weights are averaged. If you must be able to
# repeat a run, count steps.
#
# In RETURNN, T is ``horovod_param_sync_time_diff``, an option of its Horovod backend. Its PyTorch
# backend counts steps only.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_local_sgd_by_time
#    :next: :doc:`5_minGPT`
#
#    You can now let one rank decide for all. The same broadcast serves for every decision that ranks
#    might take differently: to stop early, to save after an hour, to skip a bad batch.
#
#    .. fold:: Rank 0's clock is an hour wrong. Does it matter?
#
#       No. The script uses differences of one clock only. ``time.perf_counter`` also ignores it when
#       somebody sets the system's clock.
#
#    .. fold:: You let any rank that finds T seconds passed trigger the average. What must change?
#
#       The broadcast becomes an ``all_reduce`` with ``ReduceOp.MAX``. It costs a little more, and
#       any fast clock then decides for all.
#
#    .. fold:: ``SYNC_EVERY`` steps take longer than T. What does the script do?
#
#       It averages every ``SYNC_EVERY`` steps: each time it asks, T seconds have passed. It never
#       averages more often than that.
