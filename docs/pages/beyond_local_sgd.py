# %% [markdown]
"""
Local SGD and DiLoCo: averaging the weights now and then
========================================================
"""

# %% [markdown]
# **You will be able to** train with a hundredth of DDP's messages, and to say what that changes in
# the result and in a checkpoint.
#
# **You need** the script of :doc:`4_multinode`, and :doc:`5_minGPT` for the last section.
#
# DDP sends all gradients at every step. On a slow network, such as Ethernet between nodes, a step
# may wait longer than it computes. *Local SGD* communicates less: each rank trains its own copy of
# the model, and every N steps the ranks average their weights. The first lesson of this page builds
# that. The other two start from its script: one averages every T seconds, and *DiLoCo* adds an
# optimizer that works on the averages.
#
# RETURNN calls this ``reduce_type = "param"``, and its documentation recommends N = 100.

# %% [markdown]
# Averaging no gradients
# ----------------------
#
# .. lesson-diff:: local_sgd
#    :edit: average-no-gradients
#    :confirmed: efe82ebca280
#
#    ``no_sync()`` sets this attribute while its block runs. Here it is set for the whole training.
#    DDP is still useful, because its constructor broadcasts the weights of rank 0, so all copies
#    begin equal. Its :term:`buckets <bucket>` cost memory for one copy of the gradients.
#
# .. run::
#    :expect: gradients its own
#    :mark: weights
#
#    python -m tools.series run --probe local_sgd@1 3 3
#
# The sums after ``weights`` differ, because these are two models.

# %% [markdown]
# Averaging the weights
# ---------------------
#
# .. lesson-diff:: local_sgd
#    :edit: average-the-weights
#    :confirmed: df7ad1836553
#
#    ``all_reduce`` gives every rank the sum, so each rank first divides its weights. Division and
#    all-reduce change the parameter in place, because ``detach()`` returns a tensor that shares its
#    memory.
#
#    All ranks count the same steps, so they reach each average together. The count begins at
#    ``epochs_run * len(train_data)``, so a resumed run averages at the same steps as an
#    uninterrupted one, and the checkpoint need not hold the count.
#
# .. run::
#    :expect: 9 all-reduces of 20 numbers
#    :mark: weights
#
#    python -m tools.series run --probe local_sgd@2 3 3
#
# The model has 20 weights and a bias, so an average sends two messages. In 96 steps there are 9
# averages, where DDP needs 96. The sums of the weights are closer than before, but not equal,
# because each rank has made 6 more steps alone.

# %% [markdown]
# Saving one model
# ----------------
#
# Local rank 0 of each node saves. But its weights are now its own, and so is its momentum, which no
# step averages. After a restart, all ranks load one node's file, and what the other ranks had is
# lost. A killed run then ends differently from an uninterrupted one:
#
# .. run::
#    :expect: (?m)^not equal
#    :status: 1
#    :show: 0 6
#    :mark: kill -9|Resuming|not equal
#
#    . launch/restarts.sh; python docs/labs/kill.py 10 python -m tools.series run local_sgd@2 20 4
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
#    ``self.optimizer.state`` has a dictionary per parameter, which for SGD holds the momentum.
#    Every rank continues with the average of all momenta, so the file holds what every rank has.
#    The lines are above ``return``, because every rank must call ``all_reduce``.
#
# .. run::
#    :expect: (?m)^equal
#    :show: 0 6
#    :mark: kill -9|Resuming|equal, bit
#
#    . launch/restarts.sh; python docs/labs/kill.py 10 torchrun --standalone --nproc_per_node=2 -m beyond.local_sgd 20 4
#    mv local_sgd.pt killed.pt
#    torchrun --standalone --nproc_per_node=2 -m beyond.local_sgd 20 4 | tail -n 1
#    python docs/labs/same.py local_sgd.pt killed.pt
#
# The price: a save is now an average too, so saving more often gives a slightly different model.

# %% [markdown]
# Is N = 1 the same as DDP?
# -------------------------
#
# With SGD, yes, up to rounding. The update and the momentum are linear in the gradient, so you can
# average before the update or after it. Set N to 1, and compare:
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
# With Adam, no. Adam divides by the root of the mean squared gradient, which is not linear, and
# each rank computes these moments from its own gradients. Only a save averages them here. PyTorch's
# ``PeriodicModelAverager`` and ``PostLocalSGDOptimizer`` never do. The same comparison with Adam:
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
# A lab trains with DDP and with N = 1, 8 and 100 in turn, and prints the losses after the 5th and
# the 20th epoch:
#
# .. run::
#    :expect: every 100 \| loss
#    :alone:
#
#    torchrun --standalone --nproc_per_node=2 -m docs.labs.sync_every 20
#
# N = 1 gains nothing, because it sends at every step, and two messages where DDP sends one. Larger
# N gain a lot, because the model is tiny and much of its time is messages. If your step waits for
# messages a tenth of its time, you save a tenth at most.
#
# The losses hardly differ, because the problem is linear and both ranks see the same kind of data.
# A deep model may lose accuracy as N grows: see "A GPT on a slow link" below.
#
# There are two limits. Buffers, such as the running means of batch normalisation, stay different on
# each rank, so average them too if your model has any. And by default Adam keeps its step count on
# the CPU, where NCCL cannot reduce it: ``fused=True`` puts it on the GPU.

# %% [markdown]
# Letting one clock decide
# ------------------------
#
# The right N depends on the speed of a step and of the network. The second lesson averages every T
# seconds instead, which adapts to both: if an average takes 1 s and T is 50 s, it costs about 2 %
# of the time on any machine. But if each rank read its own clock, one would call ``all_reduce``
# while another took one more step. So in ``local_sgd_by_time.py`` the clock of rank 0 decides, and
# a :term:`broadcast` tells the others:
#
# .. lesson-diff:: local_sgd_by_time
#    :edit: let-one-clock-decide
#    :confirmed: fb0f7b24fc3b
#
#    A broadcast per step would cost about as much as an average of this small model, so the ranks
#    broadcast only every ``SYNC_EVERY`` steps. They count the same steps, so all of them take part.
#
#    Every rank passes its own ``elapsed`` to ``broadcast``, which overwrites it with rank 0's. The
#    time restarts after each average, and so after each save.
#
# .. run::
#    :expect: 64 broadcasts
#    :show: 0 5
#    :mark: probe
#
#    python -m tools.series run --probe local_sgd_by_time 20 20
#
# The 640 steps have 64 broadcasts. The number of all-reduces depends on the speed of the machine,
# but it is the same on both ranks, which end with the same weights. Two runs differ, however: to be
# able to repeat a run, count steps.
#
# On one machine all ranks read nearly the same clock, so a script that uses each rank's own clock
# may seem correct for a long time. This command removes the broadcast and sets rank 1's clock a
# second ahead. Rank 1 sends its weights, rank 0 the two numbers of its loss, and gloo notices the
# different sizes. Equal sizes would mix without an error, and NCCL would hang:
#
# .. run::
#    :expect: distributed collective mismatch
#    :status: 1
#
#    sed 's/dist.broadcast(elapsed, src=0)/elapsed += dist.get_rank()/' beyond/local_sgd_by_time.py > own_clocks.py
#    torchrun --standalone --nproc_per_node=2 own_clocks.py 50 10 2>&1 | grep -o 'Is there.*'
#
# The same broadcast works for other decisions: to stop early, to save after an hour, or to skip a
# bad batch.

# %% [markdown]
# Treating the difference as a gradient
# -------------------------------------
#
# The third lesson starts from ``local_sgd.py`` again. An average does not say in which direction
# the copies of the model moved. Momentum would, but each rank's optimizer sees only that rank's
# gradients, and no optimizer sees the averages. DiLoCo (Douillard et al., 2023, arXiv 2311.08105)
# adds one that does. Each rank trains with its own *inner* optimizer, and every N steps an *outer*
# optimizer treats the change of the weights as a gradient. With eight workers, the paper reports
# the quality of synchronous training with 500 times less communication.
#
# .. lesson-diff:: diloco
#    :edit: treat-the-difference-as-a-gradient
#    :confirmed: 39bf38baf128
#
#    ``anchor`` holds the weights with which all copies began, as one vector. Gradient descent
#    subtracts a gradient, so the *outer gradient* is the anchor minus the average. SGD moves the
#    anchor, and every copy starts again from there.
#
#    This sends nothing new: every rank has the same average and the same anchor, so all outer
#    optimizers take the same step. The cost is memory: three numbers per weight, for the anchor,
#    the outer gradient and the momentum of the next section.
#
#    ``vector_to_parameters`` makes each weight a view of its part of the vector. Without
#    ``clone()``, the inner steps would move the anchor.
#
# .. run::
#    :expect: optimizers made 96 and 9 steps
#    :show: 1 4
#    :mark: optimizers
#
#    python -m tools.series run --probe diloco@1 3 3
#
# The probe counts 96 inner and 9 outer steps. With a rate of 1 and without momentum, an outer step
# ends at anchor − (anchor − average), which is the average. So the result must be that of
# ``local_sgd.py``. Here both run with N = 1:
#
# .. run::
#    :expect: weights (0\.0e\+00|[\d.]+e-(0[89]|1\d))
#    :show: 0 1
#    :mark: weights
#
#    sed 's/^SYNC_EVERY = 10/SYNC_EVERY = 1/' beyond/local_sgd.py > averages.py
#    sed 's/^SYNC_EVERY = 10/SYNC_EVERY = 1/; s/^OUTER = .*/OUTER = {"lr": 1}/' beyond/diloco.py > rate_1.py
#    torchrun --standalone --nproc_per_node=2 averages.py 5 5 | tail -n 1
#    torchrun --standalone --nproc_per_node=2 rate_1.py 5 5 | tail -n 1
#    python docs/labs/distance.py averages.pt rate_1.pt

# %% [markdown]
# Momentum for the outer steps
# ----------------------------
#
# So far, nothing is gained. Now the outer optimizer gets the paper's rate and momentum:
#
# .. lesson-diff:: diloco
#    :edit: give-it-momentum
#    :confirmed: 905d686925f7
#
#    With momentum 0.9, a step also repeats 0.9 of the step before. If the averages keep moving in
#    one direction, the steps grow to 0.7 / (1 − 0.9) = 7 times the difference. Nesterov's form adds
#    the newest difference 1.9 times, so it notices a change of direction sooner.
#
# .. run::
#    :expect: Epoch  3 . loss 0\.0[\s\S]*Epoch 20 . loss 0\.0[23]
#    :mark: Epoch +[35] \|
#
#    python -m tools.series run local_sgd 20 20 | sed -n '2p;4p;6p;11p;21p'
#    python -m tools.series run diloco@2 20 20 | sed -n '2p;4p;6p;11p;21p'
#
# After the third epoch, the loss is an eighth of that of ``local_sgd.py``. Then it rises, because
# the momentum carries the weights past the minimum. After 20 epochs, both are at the noise of the
# data, 0.03. Momentum helps while the minimum is far away.

# %% [markdown]
# Saving the anchor and the momentum
# ----------------------------------
#
# Kill a worker now, and watch the loss:
#
# .. run::
#    :expect: Resuming after epoch (8|12)\n[\s\S]*loss [1-9]\.
#    :show: 0 1
#    :mark: Epoch +(8|11) . loss|kill -9|Resuming
#
#    . launch/restarts.sh; python docs/labs/kill.py 10 python -m tools.series run diloco@2 20 4
#
# The loss becomes a hundred times as high, and no error says why. The restarted run has loaded the
# weights, but its anchor holds the initial ones. So the first outer gradient is the progress of all
# epochs so far, and the outer optimizer takes it for that of ten steps.
#
# .. lesson-diff:: diloco
#    :edit: save-both
#    :confirmed: 1d0e763e3e0b
#
#    A save usually comes between two outer steps, so the anchor differs from the weights and cannot
#    be computed from them. Every rank has the same anchor and momentum, so nothing needs to be
#    averaged here, and any node's file will do.
#
# .. run::
#    :expect: (?m)^equal
#    :show: 0 3
#    :mark: kill -9|Resuming|equal, bit
#
#    . launch/restarts.sh; python docs/labs/kill.py 10 torchrun --standalone --nproc_per_node=2 -m beyond.diloco 20 4
#    mv diloco.pt killed.pt
#    torchrun --standalone --nproc_per_node=2 -m beyond.diloco 20 4 | tail -n 1
#    python docs/labs/same.py diloco.pt killed.pt

# %% [markdown]
# A GPT on a slow link
# --------------------
#
# The model so far has 21 weights, too few for a slow network to matter. So a lab adds DiLoCo to the
# trainer of :doc:`5_minGPT`:
#
# .. run::
#    :expect: _outer_step\(\)
#
#    sed -n '/^class DiLoCo/,/_outer_step()/p' docs/labs/diloco_gpt.py
#
# The GPT has two layers and 67,680 weights. It trains on two nodes, each with its own network card
# and one process. ``tc``, Linux's traffic control, lets each node send at most 100 Mbit/s. Batches,
# learning rate and number of tokens are the same in all rows:
#
# .. run::
#    :expect: bytes 1/(99|100|101) of DDP's; losses: DiLoCo [+-][0-5]\.
#    :mark: ^DiLoCo|^bytes
#    :alone:
#    :timeout: 1200
#
#    python -m docs.labs.diloco_gpt
#
# **Bytes.** Node1's network card counts them, with headers and acknowledgements. DDP sends the
# gradients at each of 1,000 steps, and the other two send the weights at every hundredth.
#
# **Loss.** After equal tokens, DDP is best. Copies that train apart cost a few percent, and the
# outer optimizer wins part of that back. Ten outer steps are few for a momentum of 0.9, with which
# we saw 2.188 against 2.179 of plain averages, so the lab uses 0.8. We chose it by the same loss,
# so do not read the order of the two as a rule.
#
# **Wall time.** On this link, DDP's bytes alone take 23 s. DiLoCo's take a quarter of a second, and
# the rest of its time is computing, which depends on the machine. In the time that DDP takes,
# DiLoCo can train on more tokens.
#
# Without root or Linux, the lab prints rows that were measured earlier, and its first line says so.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_local_sgd
#    :next: :doc:`beyond_comm_hooks`, which sends smaller messages in place of fewer
#
#    You can now average weights in place of gradients, let one rank decide for all, add an outer
#    optimizer, resume exactly, and say what each costs in loss.
#
#    .. fold:: You move the averages in ``_save_checkpoint`` below ``return``. What happens?
#
#       Only local rank 0 of each node calls ``all_reduce`` there, while the others call another
#       collective. With several processes per node, the run hangs or fails.
#
#    .. fold:: N is 100, and an epoch has 32 steps. After which epoch does the first average come?
#
#       During the fourth, because three epochs have 96 steps and the count continues across epochs.
#       But each save averages too, and may come first.
#
#    .. fold:: The average should begin as soon as any rank finds that T seconds have passed. What must change?
#
#       The broadcast becomes an ``all_reduce`` with ``ReduceOp.MAX``. It costs a little more, and
#       any fast clock then decides for all.
#
#    .. fold:: In DiLoCo you write ``average - self.anchor``. What happens?
#
#       The sign is wrong, so SGD moves the anchor away from the average. Each time, the copies
#       start further back, and the loss grows without limit.
#
#    .. fold:: N is 500 and your link is 10 times slower than the one above. What sets the step time?
#
#       Computing. Per step, DiLoCo sends 1/500 of DDP's bytes. On your link these take 1/50 of
#       DDP's time above: 23 ms × 1/50, about half a millisecond. But they come in one burst: every
#       500 steps, all ranks wait a quarter of a second.
