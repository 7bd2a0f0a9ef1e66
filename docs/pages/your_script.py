# %% [markdown]
"""
From your script to DDP
=======================
"""

# %% [markdown]
# **You will be able to** change a training script of your own so that it uses all GPUs of a
# machine, and to check each change.
#
# **You need** :doc:`2_multigpu`. It explains the same ideas in a script made for them. The script
# on this page was not made for DDP. It is an image classifier as people write them: a ``Dataset``
# with augmentation, a ``DataLoader`` with workers and pinned memory, a CNN with BatchNorm, a
# scheduler that watches the validation loss, and a checkpoint of the best model.
#
# .. run::
#    :expect: ^Epoch 6 \| .* accuracy 9\d
#
#    python docs/port/classifier.py
#
# ``next lr`` is the learning rate that ``ReduceLROnPlateau`` chose for the next epoch, by the
# validation loss.
#
# .. fold:: The whole script, ``classifier.py``
#
#    .. lesson-script:: classifier
#
# Seven edits turn it into ``classifier_ddp.py``. After each of them the script runs, and this page
# runs it: for one epoch, on two processes. The option ``--probe`` makes every process report, in
# two lines at its end, what it did.

# %% [markdown]
# One process per GPU
# -------------------
#
# ``classifier.py`` is one process, and uses one GPU, even if the machine has eight.
#
# .. lesson-diff:: classifier_ddp
#    :edit: join-the-group
#    :confirmed: d58c3ef47d6a
#
#    :torch:`torchrun <torch.distributed.run>`, the launcher of :doc:`3_fault_tolerance`, starts the processes, and tells each of
#    them its numbers through the environment. ``LOCAL_WORLD_SIZE`` is the number of processes on
#    this machine. ``LOCAL_RANK`` is the :term:`local rank`, the number of the process on its
#    machine. ``set_device_index`` makes the GPU of that number the current one. From then on
#    ``"cuda"`` without a number means that GPU. So the lines below, such as ``.to(device)``, need
#    no change. If your script says ``"cuda:0"`` or ``.cuda(0)`` somewhere, delete the number.
#
#    ``init_process_group`` connects the processes. It returns when all of them have called it. Its
#    argument is the :term:`backend`: NCCL for CUDA, gloo for a CPU. ``device_id``, which
#    ``multigpu.py`` passes, is optional: NCCL uses the current GPU.
#
#    With fewer GPUs than processes, this script uses the CPU, so that you can try two processes
#    anywhere. In your own script you may prefer an error.
#
# .. run::
#    :expect: rank 1 of 2
#    :mark: probe
#
#    python -m tools.series run --probe classifier_ddp@1 --epochs 1
#
# There are two ranks. But they print the same losses and have the same ``weights``: both train on
# all 3,000 images, in the same order.

# %% [markdown]
# Sharing the training images
# ---------------------------
#
# Each rank should train on its own half of the images.
#
# .. lesson-diff:: classifier_ddp
#    :edit: share-the-images
#    :confirmed: 74010a6f62c5
#
#    :torch:`torch.utils.data.DistributedSampler` replaces ``shuffle=True``. It shuffles all images, in the same order on
#    every rank, and gives each rank its share. ``set_epoch`` makes the order change per epoch.
#
#    The batch size of a ``DataLoader`` is per process. Divided by the :term:`world size`, it leaves
#    the :term:`global batch` at 64, so the learning rate still fits. (64 can be divided by 2, 4 and
#    8. If yours cannot, ``//`` rounds down, and the global batch shrinks a little.) If you want a
#    larger global batch, read :doc:`batch_and_learning_rate`.
#
#    ``num_workers`` is per process, too. Two ranks with two workers each are four more processes.
#    If your machine has too few cores for that, divide it by the number of processes.
#
#    The seed gets the rank, because the workers draw their random flips and shifts from it. With
#    one seed for all, the ranks would augment their images in the same way. What must *not* differ
#    is the data: ``Shapes`` has its own generator, with its own seed.
#
# .. run::
#    :expect: share 2 of 2
#    :mark: probe
#
#    python -m tools.series run --probe classifier_ddp@2 --epochs 1
#
# Each rank trains on its share. But ``weights`` differs: there are two models, and nothing makes
# them equal.

# %% [markdown]
# Wrapping the model
# ------------------
#
# The ranks must average their gradients. Then both take the same steps, and have the same model.
#
# .. lesson-diff:: classifier_ddp
#    :edit: wrap-the-model
#    :confirmed: cb226e8ec42a
#
#    The constructor broadcasts rank 0's weights, so it does not matter that the ranks drew
#    different ones. During ``backward()`` DDP averages the gradients, so the weights stay equal.
#
#    The checkpoint is that of ``model.module``, the model inside of the wrapper. Otherwise every
#    name in the file would begin with ``module.``, and the model of ``classifier.py`` could not
#    load it.
#
#    **BatchNorm** needs a closer look. Its *running averages*, which it uses in ``eval()``, are
#    buffers. No gradient changes them, each rank computes them from its own images, and so they
#    differ. In training, DDP therefore broadcasts rank 0's buffers to all ranks at the beginning of
#    every ``forward``. And while it trains, BatchNorm normalizes with the mean and variance of
#    *its* batch: 32 images now, and 64 before.
#    :torch:`nn.SyncBatchNorm <torch.nn.SyncBatchNorm>` computes both over all ranks.
#    It is worth its cost if a rank has only a few images per step. It needs GPUs: on the CPU DDP
#    raises ``SyncBatchNorm layers only work with GPU modules``.
#
# .. run::
#    :expect: gradients averaged
#    :mark: probe
#
#    python -m tools.series run --probe classifier_ddp@3 --epochs 1
#
# ``weights`` is the same on both ranks. The validation losses agree, too, since ``evaluate`` calls
# the wrapper, and that gives both ranks the same buffers. The training losses differ, because each
# is about one half of the images.

# %% [markdown]
# Summing the loss over all ranks
# -------------------------------
#
# The two training losses above are those of two halves. Neither is that of all images.
#
# .. lesson-diff:: classifier_ddp
#    :edit: sum-the-loss
#    :confirmed: c2fadd117a04
#
#    Each rank contributes its sum and its count, and ``all_reduce`` replaces both by the totals
#    over all ranks. Divide afterwards: the mean of two means is wrong when the shares are not
#    equal.
#
#    ``train_one_epoch`` counts the images it has seen. If yours divides by ``len(loader.dataset)``
#    or ``len(loader)``, count as well.
#
# .. run::
#    :expect: train loss
#    :mark: train loss
#
#    python -m tools.series run --probe classifier_ddp@4 --epochs 1
#
# Both ranks print the same training loss, that of all 3,000 images.

# %% [markdown]
# Validating every image once
# ---------------------------
#
# So far the probe has said ``validated 501`` on both ranks. Each of them does all of the
# validation, so it takes as long as before.
#
# .. lesson-diff:: classifier_ddp
#    :edit: validate-together
#    :confirmed: d49227bbbd4e
#
#    A ``DataLoader`` takes any sequence of indices as a sampler. With this one, rank 0 has images
#    0, 2, 4, …, and rank 1 has 1, 3, 5, …: 251 and 250. ``DistributedSampler`` would repeat an
#    image, to make both shares 251.
#
#    Unequal shares need some care. ``forward`` of the wrapper may be a :term:`collective`, because
#    it broadcasts the buffers. Under ``no_grad`` only the first one does, but without it each. Then
#    a rank with one batch fewer leaves the others waiting, and so does a rank that has no batch at
#    all. So ``evaluate`` gets ``model.module``, which sends nothing. The loop above it broadcasts
#    the buffers once, and both ranks validate the model that rank 0 will save.
#
# .. run::
#    :expect: validated 25[01]
#    :mark: val loss
#
#    python -m tools.series run --probe classifier_ddp@5 --epochs 1
#
# Each rank validated one half. The validation loss and the accuracy are the same as before, to the
# last digit: every image counts once.
#
# And they are the same on both ranks. That matters, because ``ReduceLROnPlateau`` decides by this
# number. If the ranks gave it different numbers, one would lower its learning rate and the other
# would not: see below.

# %% [markdown]
# Printing and saving once
# ------------------------
#
# Both ranks print, and both write ``classifier.pt``. Two writers of one file can damage it.
#
# .. lesson-diff:: classifier_ddp
#    :edit: print-and-save-once
#    :confirmed: f0e483e5e684
#
#    Everything below this line is for rank 0 only. So no collective may follow it in the loop.
#    ``scheduler.step`` stays above, because every rank has its own scheduler.
#
#    ``best`` is known to rank 0 only. If it also decides when to stop, every rank must compute it:
#    see *early stopping* below.
#
# .. run::
#    :expect: \| saved
#    :mark: saved
#
#    python -m tools.series run classifier_ddp@6 --epochs 1
#
# One line per epoch, one checkpoint.

# %% [markdown]
# Ending the process group
# ------------------------
#
# The probe's lines so far end with ``group not left``. A :term:`process group` has threads and
# connections, which must end before Python does.
#
# .. lesson-diff:: classifier_ddp
#    :edit: end-the-group
#    :confirmed: 4594ed2fd93c
#
#    ``destroy_process_group`` ends them. After an exception it does not run; then ``torchrun``
#    terminates the other processes. ``multigpu.py`` also has a barrier here, which keeps a rank
#    from reporting success before the last checkpoint is on the disk.
#
#    The call stands behind ``main()``, so that the DDP model is gone: a group that a model still
#    holds may hang (:doc:`symptoms`, "A hang after the last line").
#
#    The import looks superfluous. But DDP and the optimizers import ``torch._dynamo`` anyway, and
#    if they do so after ``init_process_group``, it keeps a reference to the group. A run may then
#    die with SIGABRT when Python ends: see the end of :doc:`2_multigpu`, where ``utils.set_device``
#    has this import.
#
# .. run::
#    :expect: group left
#    :mark: group left
#
#    python -m tools.series run --probe classifier_ddp@7 --epochs 1
#
# This is ``classifier_ddp.py``, line for line.

# %% [markdown]
# Is it the same training?
# ------------------------
#
# The finished script, and then a check. In one process, ``validate.py`` loads the checkpoint and
# validates all 501 images with the functions of ``classifier.py``, which know nothing of DDP:
#
# .. run::
#    :expect: ^classifier.pt \| val loss 0\.\d+ \| accuracy 9
#    :mark: ^classifier
#
#    {classifier_ddp}
#    python docs/port/validate.py
#
# Loss and accuracy are those of the last line that says ``saved``. So the validation is exact. The
# training differs from that of ``classifier.py``, for three reasons: the images come in another
# order, they are augmented with other random numbers, and BatchNorm normalizes 32 images at a time.
#
# The first two are chance. To see the third alone, switch the augmentation off, and start the same
# script with one and with two processes. ``DistributedSampler`` gives them the same 64 images per
# step. Then replace BatchNorm by GroupNorm, which normalizes each image by itself:
#
# .. run::
#    :expect: train loss (\d\.\d{3})\d \| val loss (\d\.\d\d)\d\d [\s\S]*train loss \1\d \| val loss \2
#    :mark: train loss
#
#    sed 's/augment=True/augment=False/' docs/port/classifier_ddp.py > bn.py
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=1 bn.py --epochs 1
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 bn.py --epochs 1
#    sed 's/BatchNorm2d(/GroupNorm(4, /' bn.py > gn.py
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=1 gn.py --epochs 1
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 gn.py --epochs 1
#
# With BatchNorm the losses are near, but not equal. With GroupNorm they agree. Compare the first
# epoch only, because rounding errors grow.
#
# This is the best check of your own port. Without augmentation, dropout and BatchNorm, one and two
# processes must print the same losses at the same global batch. If they do not, something is still
# computed per rank. Or your loss divides by something else than the number of samples: see *A loss
# over tokens or with weights* below.

# %% [markdown]
# What could go wrong
# -------------------
#
# **Ranks decide by different numbers.** Here the sum is taken out of ``evaluate`` of stage 5, in
# which both ranks still print. Each rank then has the validation loss of one half:
#
# .. run::
#    :expect: ^Epoch (\d) .*lr ([\d.]+).*\nEpoch \1 .*lr (?!\2\b)
#    :mark: lr 0\.00
#
#    python -m tools.series show classifier_ddp@5 | sed '/correct, seen = sum_over/d' > broken.py
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 \
#    broken.py --epochs 6 --lr 0.02 | grep lr | sort | tail -n 6
#
# There are two lines per epoch, one of each rank. At first the learning rates agree, by luck. Then
# one rank lowers its own and the other does not. They apply the same gradients with different
# learning rates, so there are two models from then on. No error is raised.

# %% [markdown]
# What to look at when yours differs
# ----------------------------------
#
# Most of these run without an error and train something else than you think. :doc:`symptoms` shows
# some of them at work.
#
# .. fold:: The data: ``IterableDataset``, ``random_split``, samplers, downloads, ``drop_last``
#
#    ``IterableDataset``
#       It takes no sampler. Give the data set rank and world size, and let each worker of each rank
#       skip what the others take, for example with ``itertools.islice``. If ranks then have unequal
#       numbers of batches, put the epoch into ``with model.join():``, or end it on all ranks at the
#       shortest.
#
#    ``random_split`` and data made at random
#       Pass ``generator=torch.Generator().manual_seed(0)``. If each rank splits differently, one
#       trains on what another validates.
#
#    Another sampler (``WeightedRandomSampler``)
#       ``DistributedSampler`` would replace it. Draw the same indices on every rank, from a
#       generator seeded with the epoch, and keep every *world size*-th.
#
#    A batch sampler (buckets of equal length, dynamic batches)
#       Make the same list of batches on every rank, and keep every *world size*-th batch. The counts
#       must be equal: repeat a few, ``batches += batches[: -len(batches) % world_size]``.
#
#    Downloads and preprocessing
#       ``run_once_per_node`` of ``mingpt/once.py``: one process writes, the others wait and then
#       read. If it fails, all fail.
#
#    ``drop_last`` and small data sets
#       ``DistributedSampler`` repeats a few images so that all shares are equal. With
#       ``drop_last=True`` it leaves out a few instead.
#
# .. fold:: The model: ``DataParallel``, accumulation, AMP, GANs, unused parameters, EMA, compile
#
#    ``nn.DataParallel``
#       Remove it, and with it what it needed: a batch size multiplied by the number of GPUs,
#       ``loss.mean()`` over GPUs, ``device_ids``. DDP has one process per GPU.
#
#    A loss over tokens or with weights (padding, ``ignore_index``, class weights)
#       DDP averages the ranks' means, but their denominators differ. So take the sum,
#       ``reduction="sum"``, and let ``total`` be a tensor with this rank's denominator. Then
#       ``dist.all_reduce(total)``, and ``(loss * world_size / total).backward()``. Log the sum of
#       the losses over all ranks, divided by ``total``.
#
#    Gradient accumulation
#       Put all micro-batches but the last before a step into ``with model.no_sync():``, the forward
#       too. Without it the result is right, but every micro-batch pays for an all-reduce. If an
#       epoch's last group is shorter, its last micro-batch must still send.
#
#    Mixed precision (AMP) and gradient clipping
#       No change. Gradients are averaged when ``backward()`` returns, so ``GradScaler`` and
#       ``clip_grad_norm_`` see the same numbers on every rank.
#
#    Several models or optimizers, GANs
#       Wrap each model that is trained in its own DDP. Every rank must call the forward and
#       backward passes of these models in the same order. ``join`` works with one wrapper only.
#
#    Parameters that a step does not use
#       DDP waits for their gradients, and raises an error at the next step. Pass
#       ``find_unused_parameters=True``, which costs some time, or do not train them:
#       ``requires_grad_(False)`` before the wrapper.
#
#    Methods of your model
#       ``model.encode(x)`` becomes ``model.module.encode(x)``. But train through ``model(x)``: only
#       the wrapper's forward prepares the averaging.
#
#    An average of the weights (EMA)
#       Make the copy from ``model.module``, after the model is wrapped. The weights are equal on
#       all ranks, so each rank can update its copy and nothing needs to be sent.
#
#    ``torch.compile``
#       Wrap first, compile second: ``torch.compile(DDP(model))``.
#
# .. fold:: Decisions and files: early stopping, schedulers, metrics, checkpoints, logging, seeds
#
#    Early stopping
#       Every rank must decide, by a number that is the same on all. If one rank leaves the loop,
#       the others hang. The same holds for whatever depends on a clock, such as a time limit: let
#       rank 0 decide and broadcast.
#
#    Schedulers that count steps
#       With the same global batch an epoch has as many steps as before, and ``len(train_loader)``
#       says how many. With a larger one it has fewer, so a schedule given in steps lasts for more
#       epochs.
#
#    Metrics
#       Counts and sums can be added up like the accuracy above. A median, an AUC or a mAP cannot:
#       gather the predictions. ``parts = [None] * world_size``, then ``dist.all_gather_object(parts,
#       mine)`` on every rank, and each computes the same number, on which a scheduler can decide.
#       torchmetrics sums by itself in ``compute()``, which every rank must call.
#
#    Checkpoints
#       To resume, every rank loads the file with ``map_location="cpu"``, into ``model.module`` and
#       into the optimizer. DDP broadcasts the model but not the optimizer. If an old file has names
#       that begin with ``module.``, call ``consume_prefix_in_state_dict_if_present(state, "module.")``
#       of ``torch.nn.modules.utils``, which changes ``state``. :doc:`3_fault_tolerance` saves and resumes all of the state.
#
#    Logging
#       TensorBoard, wandb and progress bars on rank 0 only: a second writer starts a second run.
#       Whoever logs a number of rank 0 alone logs the number of a share.
#
#    Random seeds
#       Different per rank for dropout and augmentation, the same for data and splits. The initial
#       weights may be either, because DDP broadcasts those of rank 0.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: your_script
#    :next: :doc:`3_fault_tolerance`, to survive crashes, or :doc:`symptoms`, if it hangs
#    :also: torchrun <torch.distributed.run>, torch.nn.SyncBatchNorm
#
#    You can now change your own training script to use all GPUs of a machine, and check each
#    change by what the ranks print.
#
#    .. fold:: With two processes, you keep 64 images per process instead of dividing. What changes, and how do you check your port then?
#
#       The global batch is 128, so an epoch has 24 steps instead of 47 with the same learning
#       rate. That is another training, not a wrong one. Compare it with one process and
#       ``--batch-size 128``.
#
#    .. fold:: You stop with ``if accuracy > 0.97: break``, at the end of the loop, which only rank 0 reaches. What happens?
#
#       Rank 0 leaves the loop and ends its group. The others start the next epoch and wait for it:
#       they fail when its connection closes, or hang until a timeout. Put the test above ``if rank
#       != 0: continue``, where all ranks have the same accuracy.
#
#    .. fold:: ``ReduceLROnPlateau`` gets another loss on each rank. Nothing fails. Which number shows it?
#
#       The probe's ``weights``. From the step at which the learning rates differ, the same
#       gradients move the weights by different amounts, and the two sums differ. The printed
#       learning rate shows it too, if both ranks print.
