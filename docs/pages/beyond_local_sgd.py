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
# that. Two more begin where it ends: one averages every T seconds, and *DiLoCo* gives the averages an
# optimizer of their own.
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
# With Adam, no. Adam divides by the root of the mean squared gradient, which is not linear, and each
# rank computes these moments from its gradients alone. Only a save averages them here; in PyTorch's
# ``PeriodicModelAverager`` and ``PostLocalSGDOptimizer`` nothing does. The same comparison with Adam:
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
# A lab trains with DDP and with N = 1, 8 and 100. The four take turns after each epoch:
#
# .. run::
#    :expect: every 100 \| loss
#    :alone:
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m docs.labs.sync_every 20
#
# The losses are those after the 5th and after the 20th epoch, and the last column compares the speed
# with DDP's. N = 1 gains nothing: it sends at every step, and two messages where DDP sends one.
# Larger N gain a lot, because the model is tiny and most of its time is messages. If your step waits
# for messages a tenth of its time, you save a tenth at most.
#
# The losses hardly differ, because the problem is linear and both ranks see the same kind of data. A
# deep model may lose accuracy as N grows: the last section of this page measures it on a GPT.
#
# Two limits. Buffers, such as the running means of batch normalisation, stay each rank's own:
# average them too, if your model has any. And by default Adam keeps its step count on the CPU,
# where NCCL cannot reduce it: pass ``fused=True``, and it is on the GPU.

# %% [markdown]
# Letting one clock decide
# ------------------------
#
# The right N depends on the speed of a step and of the network. An average every T seconds adapts to
# both: if it takes 1 s and T is 50 s, it costs about 2 % of the time on any machine. But if each rank
# read its own clock, one would find that T seconds have passed and call ``all_reduce``, while another
# took one more step. So in ``local_sgd_by_time.py`` the clock of rank 0 decides, and a
# :term:`broadcast` tells the others:
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
# speed of the machine, but both ranks have the same number, and end with the same weights. Two runs
# differ, however: if you must be able to repeat a run, count steps.
#
# On one machine all ranks read nearly the same clock, so the mistake of reading one's own may stay
# hidden for a long time. Here is the script without the broadcast, and with a clock of rank 1 that is
# a second ahead. Rank 1 sends its weights, rank 0 the two numbers of its loss, and gloo notices that
# the sizes differ. Equal sizes would mix without an error, and NCCL would hang:
#
# .. run::
#    :expect: distributed collective mismatch
#    :status: 1
#
#    sed 's/dist.broadcast(elapsed, src=0)/elapsed += dist.get_rank()/' beyond/local_sgd_by_time.py > own_clocks.py
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 own_clocks.py 50 10 2>&1 | grep -o 'Is there.*'
#
# The same broadcast serves for every decision that ranks might take differently: to stop early, to
# save after an hour, to skip a bad batch.

# %% [markdown]
# Treating the difference as a gradient
# -------------------------------------
#
# Between two averages, all copies of the model move. The average remembers where they are, and not in
# which direction they went. Momentum would, but each rank's optimizer sees the gradients of that rank
# alone, and none sees the averages. DiLoCo adds one that does (Douillard et al., 2023, arXiv
# 2311.08105): each rank trains with its own *inner* optimizer, and every N steps an *outer* optimizer
# treats what the ranks have moved as a gradient. With eight workers, the paper reports the quality of
# synchronous training with 500 times less communication.
#
# .. lesson-diff:: diloco
#    :edit: treat-the-difference-as-a-gradient
#    :confirmed: 0dd7956d6bdc
#
#    ``anchor`` holds the weights with which all copies began, as one vector. Gradient descent
#    subtracts a gradient, so the *outer gradient* is the anchor minus the average. SGD moves the
#    anchor, and then every copy begins again from there.
#
#    This sends nothing new. Every rank has the same average and the same anchor, so all outer
#    optimizers take the same step. The cost is memory: one number per weight for the anchor, and
#    one for the outer gradient. The momentum of the next section is a third.
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
# ``--probe`` counts the steps: 96 inner ones, and 9 outer ones. With a rate of 1 and without
# momentum, an outer step ends at anchor − (anchor − average), which is the average. So this must be
# the parent's training. Here both run with N = 1:
#
# .. run::
#    :expect: weights (0\.0e\+00|[\d.]+e-(0[89]|1\d))
#    :show: 0 1
#    :mark: weights
#
#    sed 's/^SYNC_EVERY = 10/SYNC_EVERY = 1/' beyond/local_sgd.py > averages.py
#    sed 's/^SYNC_EVERY = 10/SYNC_EVERY = 1/; s/^OUTER = .*/OUTER = {"lr": 1}/' beyond/diloco.py > rate_1.py
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 averages.py 5 5 | tail -n 1
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 rate_1.py 5 5 | tail -n 1
#    python docs/labs/distance.py averages.pt rate_1.pt

# %% [markdown]
# Momentum for the outer steps
# ----------------------------
#
# So far, nothing is gained. Now the outer optimizer gets the values of the paper, and with them a
# memory:
#
# .. lesson-diff:: diloco
#    :edit: give-it-momentum
#    :confirmed: 905d686925f7
#
#    With momentum 0.9, a step also repeats 0.9 of the step before. If the averages keep moving one
#    way, the steps add up to 0.7 / (1 − 0.9) = 7 times the difference. Nesterov's form looks
#    ahead: it adds the newest difference 1.9 times, so it notices a change of direction sooner.
#
# .. run::
#    :expect: Epoch  3 . loss 0\.0[\s\S]*Epoch 20 . loss 0\.0[23]
#    :mark: Epoch +[35] \|
#
#    python -m tools.series run local_sgd 20 20 | sed -n '2p;4p;6p;11p;21p'
#    python -m tools.series run diloco@2 20 20 | sed -n '2p;4p;6p;11p;21p'
#
# After the third epoch, the loss is an eighth of the parent's. Then it rises: the momentum carries
# the weights past the minimum, and back. After 20 epochs, both are at the noise of the data, 0.03.
# Momentum helps while the way is long.

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
#    python docs/labs/kill.py 10 python -m tools.series run diloco@2 20 4
#
# The loss becomes a hundred times as high, and no error says why. The restarted run has loaded the
# weights, but its anchor holds the initial weights again. So the first outer gradient is
# the progress of all epochs so far, and the outer optimizer takes it for that of ten steps.
#
# .. lesson-diff:: diloco
#    :edit: save-both
#    :confirmed: 1d0e763e3e0b
#
#    A save usually comes between two outer steps, so the anchor differs from the weights. It
#    cannot be computed from them. Every rank has the same anchor and the same momentum: nothing
#    needs to be averaged here, and any node's file will do.
#
# .. run::
#    :expect: (?m)^equal
#    :show: 0 3
#    :mark: kill -9|Resuming|equal, bit
#
#    OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 python docs/labs/kill.py 10 torchrun --standalone --nproc_per_node=2 --max-restarts=3 -m beyond.diloco 20 4
#    mv diloco.pt killed.pt
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m beyond.diloco 20 4 | tail -n 1
#    python docs/labs/same.py diloco.pt killed.pt

# %% [markdown]
# A GPT on a slow link
# --------------------
#
# The model so far has 21 weights, and no network is slow for it. These lines of a lab add the lesson
# to the trainer of :doc:`5_minGPT`:
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
# **Bytes.** The counter of node1's network card includes headers and acknowledgements. DDP
# sends the gradients at each of 1,000 steps, and the other two send the weights at every
# hundredth: a hundredth of the bytes.
#
# **Loss.** After equal tokens, DDP is best. Copies that train apart cost a few percent, and the outer
# optimizer wins part of that back: here DiLoCo is closer to DDP than plain averages are. Ten outer
# steps are few for a momentum of 0.9, with which we saw 2.188 against 2.179 of plain averages. So the
# lab uses 0.8. It was chosen by the same loss, so do not read the order of the two as a rule.
#
# **Wall time.** On this link, DDP's bytes alone take 23 s. DiLoCo's take a quarter of a second, and
# the rest of its time is computing. The column also depends on the machine that built this page.
# In the time that DDP takes, DiLoCo can train on more tokens.
#
# Without root or Linux there are no such nodes, and the first line then says that the rows were
# measured earlier.

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
#       Only the local rank 0 of each node calls ``all_reduce`` there. The others call another
#       collective. With several processes per node, the run hangs or fails.
#
#    .. fold:: N is 100, and an epoch has 32 steps. After which epoch does the first average come?
#
#       During the fourth: three epochs have 96 steps. The count continues across epochs. But each save
#       averages too, so with a save after the first epoch, that one is first.
#
#    .. fold:: You let any rank that finds T seconds passed trigger the average. What must change?
#
#       The broadcast becomes an ``all_reduce`` with ``ReduceOp.MAX``. It costs a little more, and
#       any fast clock then decides for all.
#
#    .. fold:: In DiLoCo you write ``average - self.anchor``. What happens?
#
#       The sign is wrong, so SGD moves the anchor away from the average. The copies begin further
#       back each time, and the loss grows without limit.
#
#    .. fold:: N is 500 and your link is 10 times slower than the one above. What sets the step time?
#
#       Per step, DiLoCo sends 1/500 of DDP's bytes. On your link that takes 1/50 of DDP's
#       time on the link above: 23 ms × 1/50, so about half a millisecond. Computing sets the step
#       time. The bytes come in one burst: every 500 steps, all ranks wait a quarter of a second.
