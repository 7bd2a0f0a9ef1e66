# %% [markdown]
"""
All-reduce by hand: averaging the gradients without DDP
=======================================================
"""

# %% [markdown]
# **You will be able to** train on several processes without DDP, and to say what DDP adds.
#
# **You need** the script of :doc:`4_multinode`, and :doc:`1_theory`.
#
# DDP hides its work in ``backward()``. This lesson replaces DDP by one visible :term:`all-reduce`.

# %% [markdown]
# Training without DDP
# --------------------
#
# In ``multinode.py``, only DDP's import, its constructor and the two uses of ``.module`` know about
# DDP:
#
# .. lesson-diff:: explicit_gradients
#    :edit: train-without-ddp
#    :confirmed: 7626dc9510b0
#
#    Each rank now trains its own model on its own share of the data. All ranks begin with the same
#    weights, because ``load_train_objs`` sets the same seed.
#
# .. run::
#    :expect: gradients its own
#    :mark: weights
#
#    python -m tools.series run --probe explicit_gradients@1 3 3
#
# The sums after ``weights`` differ, because these are two models. Still, the loss looks fine,
# because both learn. Only the first rank of a node saves its model, so what rank 1 has learned from
# half of the data is lost.

# %% [markdown]
# Averaging the gradients
# -----------------------
#
# .. lesson-diff:: explicit_gradients
#    :edit: average-the-gradients
#    :confirmed: c141fa127562
#
#    ``parameters_to_vector`` copies all gradients into one tensor, and ``vector_to_parameters``
#    makes each gradient a view of its part of the result. One message is faster than one per
#    tensor, because each message costs time, however short it is.
#
#    ``all_reduce`` gives every rank the *sum*. Divide it, because the loss of each rank is a mean
#    over its own samples. (``op=dist.ReduceOp.AVG`` divides, too.)
#
# .. run::
#    :expect: all-reduces of 21 numbers
#    :mark: weights
#
#    python -m tools.series run --probe explicit_gradients 3 3
#
# The model has 20 weights and a bias: 21 numbers per message. The ranks end with equal weights, and
# these equal DDP's. Here ``forks.py`` trains both scripts on two ranks:
#
# .. run::
#    :expect: (?m)^equal
#    :show: 0 1
#
#    python docs/labs/forks.py 2 beyond/explicit_gradients.py multinode.py 10 10 | grep saved
#    python docs/labs/same.py explicit_gradients_2.pt multinode_2.pt
#
# With four ranks, the scripts may add the gradients in different orders, so the weights agree up to
# rounding.

# %% [markdown]
# What DDP adds
# -------------
#
# - **Overlap.** This script computes all gradients, then sends them. DDP sends the first
#   :term:`bucket` while ``backward()`` still computes the other gradients (:doc:`1_theory`).
# - **Equal weights at the start**, whatever the seed, because DDP's constructor broadcasts the
#   weights of rank 0. DDP also broadcasts buffers.
# - **Parameters without a gradient.** If a rank does not use a parameter in a step, its ``.grad``
#   is None. Then ``parameters_to_vector`` fails, and the other ranks hang in ``all_reduce`` until
#   that rank ends. DDP has ``find_unused_parameters``.
#
# Without DDP, you can change the gradients on the way, for example clip them per rank before the
# average. For some changes DDP has hooks, which keep the overlap (:doc:`beyond_comm_hooks`).

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_explicit_gradients
#    :next: :doc:`5_minGPT`
#
#    You can now replace DDP by an all-reduce of your own, and show that it trains the same model.
#
#    .. fold:: You leave out ``/ dist.get_world_size()``. What changes?
#
#       The optimizer gets the sum. With SGD, this multiplies the learning rate by the number of
#       ranks.
#
#    .. fold:: One rank's model starts with other weights. DDP repairs that. What happens here?
#
#       The ranks apply equal gradients to unequal weights, so the difference stays forever, without
#       an error.
