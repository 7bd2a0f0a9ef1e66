# %% [markdown]
"""
From your script to DDP
=======================
"""

# %% [markdown]
# **You will be able to** change your own training script so that it uses all GPUs of a machine, and
# check each change.
#
# **You need** :doc:`2_multigpu`, which explains the same ideas in a simpler script.
#
# The script on this page is a typical image classifier: augmentation, a ``DataLoader`` with workers
# and pinned memory, a CNN with BatchNorm, a scheduler that watches the validation loss
# (``ReduceLROnPlateau``), and a checkpoint of the best model.
#
# .. run::
#    :expect: ^Epoch 6 \| .* accuracy 9\d
#
#    python docs/port/classifier.py
#
# .. fold:: The whole script, ``classifier.py``
#
#    .. lesson-script:: classifier
#
# Seven edits turn the script into ``classifier_ddp.py``. After each edit this page runs it for one
# epoch on two processes. With ``--probe``, each process prints two lines about what it did;
# ``weights`` is the sum of all its weights. :doc:`The doctor <doctor>` checks these things in your
# own script without an edit.

# %% [markdown]
# One process per GPU
# -------------------
#
# ``classifier.py`` is one process and uses one GPU, even if the machine has eight.
#
# .. lesson-diff:: classifier_ddp
#    :edit: join-the-group
#    :confirmed: d58c3ef47d6a
#
#    :torch:`torchrun <torch.distributed.run>` (:doc:`3_fault_tolerance`) starts the processes and
#    passes each process its numbers through the environment. ``LOCAL_WORLD_SIZE`` is the number of
#    processes on this machine, and ``LOCAL_RANK``, the :term:`local rank`, is the number of this
#    process among them. ``set_device_index`` makes the GPU of that number the current one, and
#    ``"cuda"`` without a number then means that GPU. So the lines below, such as ``.to(device)``,
#    need no change. If your script says ``"cuda:0"`` or ``.cuda(0)``, delete the number.
#
#    ``init_process_group`` connects the processes over the :term:`backend` that it is given: NCCL
#    for CUDA, gloo for a CPU.
#
#    With fewer GPUs than processes, this script uses the CPU, so you can try two processes
#    anywhere.
#
# .. run::
#    :expect: rank 1 of 2
#    :mark: probe
#
#    python -m tools.series run --probe classifier_ddp@1 --epochs 1
#
# The two ranks have the same losses and ``weights``, because both have the same seed and train on
# all 3,000 images.

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
#    :torch:`torch.utils.data.DistributedSampler` replaces ``shuffle=True``. It shuffles all images,
#    in the same order on every rank, and gives each rank its share. ``set_epoch`` changes the order
#    per epoch.
#
#    The batch size of a ``DataLoader`` is per process. Dividing it by the :term:`world size` keeps
#    the :term:`global batch` at 64, so the learning rate still fits. If you want a larger global
#    batch, read :doc:`batch_and_learning_rate`. ``num_workers`` is per process, too: if your
#    machine has too few cores, divide it by the number of processes.
#
#    With one seed, all ranks would augment their images in the same way, so each rank seeds with
#    its number. The images themselves must be the same on every rank, so ``Shapes`` has its own
#    generator and seed.
#
# .. run::
#    :expect: share 2 of 2
#    :mark: probe
#
#    python -m tools.series run --probe classifier_ddp@2 --epochs 1
#
# Each rank trains on its share, but ``weights`` differs: nothing keeps the two models equal.

# %% [markdown]
# Wrapping the model
# ------------------
#
# The ranks must average their gradients, so that both take the same steps.
#
# .. lesson-diff:: classifier_ddp
#    :edit: wrap-the-model
#    :confirmed: cb226e8ec42a
#
#    The constructor gives every rank the weights of rank 0, although each drew its own. During
#    ``backward()`` DDP averages the gradients, so the weights stay equal.
#
#    The checkpoint is that of ``model.module``, the model inside the wrapper. Otherwise every name
#    in the file would begin with ``module.``, and a script that loads the file into a plain model,
#    such as ``validate.py`` below, could not load it.
#
#    The *running averages* of **BatchNorm**, used in ``eval()``, are buffers. Each rank computes
#    them from its own images, so DDP broadcasts rank 0's buffers at the beginning of a ``forward``
#    that follows a training step. In training, BatchNorm normalizes with the mean and variance of
#    one rank's batch: 32 images now, and 64 before. :torch:`nn.SyncBatchNorm
#    <torch.nn.SyncBatchNorm>`, which needs GPUs, computes both over all ranks. It is worth its cost
#    if a rank has few images per step.
#
# .. run::
#    :expect: gradients averaged
#    :mark: probe
#
#    python -m tools.series run --probe classifier_ddp@3 --epochs 1
#
# ``weights`` is the same on both ranks.

# %% [markdown]
# Summing the loss over all ranks
# -------------------------------
#
# The training losses still differ, because each is the loss of one half of the images.
#
# .. lesson-diff:: classifier_ddp
#    :edit: sum-the-loss
#    :confirmed: c2fadd117a04
#
#    ``all_reduce`` replaces each rank's sum and count by the totals over all ranks. Divide
#    afterwards, because the mean of two means is wrong if the shares are unequal.
#
#    If your script divides by ``len(loader.dataset)`` or ``len(loader)``, count the images instead,
#    as ``train_one_epoch`` does.
#
# .. run::
#    :expect: train loss
#    :mark: train loss
#
#    python -m tools.series run --probe classifier_ddp@4 --epochs 1
#
# Both ranks print the training loss of all 3,000 images.

# %% [markdown]
# Validating every image once
# ---------------------------
#
# So far both ranks validate all 501 images, so the validation takes as long as before.
#
# .. lesson-diff:: classifier_ddp
#    :edit: validate-together
#    :confirmed: d49227bbbd4e
#
#    A ``DataLoader`` takes any sequence of indices as a sampler. Here rank 0 has the 251 images 0,
#    2, 4, …, and rank 1 the 250 images 1, 3, 5, …
#
#    The wrapper's first ``forward`` after a training step broadcasts the buffers. So it is a
#    :term:`collective`: if one rank had no batch, the others would wait for it. ``evaluate``
#    therefore gets ``model.module``, which sends nothing. The loop above this call broadcasts the
#    buffers once, so that both ranks validate the model that rank 0 will save.
#
# .. run::
#    :expect: validated 25[01]
#    :mark: val loss
#
#    python -m tools.series run --probe classifier_ddp@5 --epochs 1
#
# Each rank validated one half, but loss and accuracy are those of all images, to the last digit, on
# both ranks. That matters, because ``ReduceLROnPlateau`` decides by the validation loss. If each
# rank decided by the loss of its half, one could lower its learning rate before the other. Then the
# same gradients would move the two models by different amounts, without an error.

# %% [markdown]
# Printing and saving once
# ------------------------
#
# Both ranks print, and both write ``classifier.pt``, which can damage the file.
#
# .. lesson-diff:: classifier_ddp
#    :edit: print-and-save-once
#    :confirmed: f0e483e5e684
#
#    All below ``continue`` is for rank 0 only, so no collective may follow it in the loop.
#    ``scheduler.step`` stays above, because every rank has its own scheduler.
#
# .. run::
#    :expect: \| saved
#    :mark: saved
#
#    python -m tools.series run classifier_ddp@6 --epochs 1

# %% [markdown]
# Ending the process group
# ------------------------
#
# The probe's lines so far say ``group not left``. A :term:`process group` has threads and
# connections, which must end before Python does.
#
# .. lesson-diff:: classifier_ddp
#    :edit: end-the-group
#    :confirmed: 4594ed2fd93c
#
#    ``destroy_process_group`` comes after ``main()``, when the DDP model is gone, because
#    destroying the group of a DDP model that still exists may hang (:doc:`symptoms`, "A hang after
#    the last line").
#
#    ``import torch._dynamo`` looks superfluous. But if torch imports it later, while the group exists,
#    it may keep a reference to the group, and on a CPU the run may end with SIGABRT: see
#    :doc:`internals`.
#
# .. run::
#    :expect: group left
#    :mark: group left
#
#    python -m tools.series run --probe classifier_ddp@7 --epochs 1

# %% [markdown]
# Is it the same training?
# ------------------------
#
# After the finished script, ``validate.py`` loads the checkpoint in one process and validates all
# 501 images with the functions of ``classifier.py``:
#
# .. run::
#    :expect: ^classifier.pt \| val loss 0\.\d+ \| accuracy 9
#    :mark: ^classifier
#
#    {classifier_ddp}
#    python docs/port/validate.py
#
# Loss and accuracy are those of the last line that says ``saved``, so the validation is exact. The
# training differs from that of ``classifier.py`` for three reasons: the images come in another
# order, they are augmented with other random numbers, and BatchNorm normalizes 32 images at a time.
#
# To see the third alone, switch the augmentation off, and run the same script with one and with two
# processes: ``DistributedSampler`` gives both runs the same 64 images per step. (If you have one
# GPU, hide it with ``CUDA_VISIBLE_DEVICES=``, because one process would use it and two would not.)
# Then replace BatchNorm by GroupNorm, which normalizes each image by itself:
#
# .. run::
#    :expect: train loss (\d\.\d{3})\d \| val loss (\d\.\d\d)\d\d [\s\S]*train loss \1\d \| val loss \2
#    :mark: train loss
#
#    sed 's/augment=True/augment=False/' docs/port/classifier_ddp.py > bn.py
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=1 bn.py --epochs 1
#    torchrun --standalone --nproc_per_node=2 bn.py --epochs 1
#    sed 's/BatchNorm2d(/GroupNorm(4, /' bn.py > gn.py
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=1 gn.py --epochs 1
#    torchrun --standalone --nproc_per_node=2 gn.py --epochs 1
#
# With BatchNorm the training losses differ by half a percent. With GroupNorm they differ only in
# the last digit.
#
# This is the best check of your own port. Without augmentation, dropout and BatchNorm, one and two
# processes must print training losses that agree to three digits at the same global batch, in the
# first epoch. (Rounding errors grow with every step.) If they differ, something is still computed
# per rank, or your loss is not a mean over samples: see *A loss over tokens or with weights* below.

# %% [markdown]
# What to look at when yours differs
# ----------------------------------
#
# Most mistakes here raise no error.
#
# .. fold:: The data: ``IterableDataset``, ``random_split``, samplers, downloads
#
#    ``IterableDataset``
#       It takes no sampler. Let each worker of each rank skip what the others take, for example
#       with ``itertools.islice``. If the numbers of batches are then unequal, put only the loop
#       over the batches into ``with Join([model]):``. Then broadcast the optimizer's state of the
#       rank with the most batches (:doc:`beyond_uneven`).
#
#    ``random_split``
#       Pass ``generator=torch.Generator().manual_seed(0)``. If each rank splits differently, one
#       trains on what another validates.
#
#    Another sampler (``WeightedRandomSampler``)
#       Each rank draws the same ``k * world_size`` indices, from a generator seeded with the epoch.
#       Keep ``indices[rank::world_size]``.
#
#    A batch sampler (buckets of equal length, dynamic batches)
#       Make the same list of batches on every rank. The counts must be equal, so repeat a few:
#       ``batches += batches[: -len(batches) % world_size]``. Then keep
#       ``batches[rank::world_size]``.
#
#    Downloads and preprocessing
#       Use ``run_once_per_node`` of ``mingpt/once.py``: one process writes, the others wait and
#       then read (:doc:`coming_from`).
#
# .. fold:: The model: loss, accumulation, AMP, GANs, unused parameters, EMA, compile
#
#    A loss over tokens or with weights (padding, ``ignore_index``, class weights)
#       DDP averages the ranks' means, but their denominators differ. So take the sum,
#       ``reduction="sum"``, and let ``total`` be a tensor with this rank's denominator. Then
#       ``dist.all_reduce(total)``, and ``(loss * world_size / total).backward()``.
#
#    Gradient accumulation
#       Put all micro-batches of a step but the last into ``with model.no_sync():``, including their
#       forward passes. Otherwise every micro-batch pays for an all-reduce. If an epoch's last step
#       has fewer micro-batches, run the last of these outside ``no_sync()``, too.
#
#    Mixed precision (AMP) and gradient clipping
#       They need no change, because ``GradScaler`` and ``clip_grad_norm_`` see the averaged
#       gradients, which are the same on every rank.
#
#    Several models or optimizers, GANs
#       Wrap each trained model in its own DDP. Every rank must call their forward and backward
#       passes in the same order.
#
#    Parameters that a step does not use
#       DDP waits for their gradients, and raises an error at the next step. Pass
#       ``find_unused_parameters=True``, which costs some time, or, if no step uses them, call
#       ``requires_grad_(False)`` before wrapping.
#
#    Methods of your model
#       ``model.encode(x)`` becomes ``model.module.encode(x)``. But train through ``model(x)``,
#       because only the wrapper's forward prepares the averaging.
#
#    An average of the weights (EMA)
#       Copy ``model.module`` after the model is wrapped. Each rank can update its own copy, because
#       the weights are equal on all ranks.
#
#    ``torch.compile``
#       Wrap first, compile second: ``torch.compile(DDP(model))``.
#
# .. fold:: Decisions and files: early stopping, metrics, checkpoints, logging
#
#    Early stopping
#       Every rank must decide by the same number, because the others hang or fail if one leaves the
#       loop. If the decision depends on a clock, such as a time limit, let rank 0 decide and
#       broadcast.
#
#    Metrics
#       A median, an AUC or a mAP cannot be summed like the accuracy above. Gather the predictions:
#       ``parts = [None] * world_size``, then ``dist.all_gather_object(parts, mine.cpu())`` on every
#       rank. With torchmetrics, every rank must call ``compute()``, which combines the data of all
#       ranks.
#
#    Checkpoints
#       To resume, every rank loads the file with ``map_location="cpu"``, into ``model.module`` and
#       into the optimizer, because DDP broadcasts weights only when it is constructed.
#       :doc:`3_fault_tolerance` saves and resumes all of the state.
#
#    Logging
#       Use TensorBoard, wandb and progress bars on rank 0 only.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: your_script
#    :next: :doc:`3_fault_tolerance`, to survive crashes, or :doc:`symptoms`, if it hangs
#    :also: torchrun <torch.distributed.run>, torch.nn.SyncBatchNorm
#
#    You can now port your own training script to all GPUs of a machine, and check each change.
#
#    .. fold:: With two processes, you keep 64 images per process instead of dividing. What changes, and how do you check your port then?
#
#       The global batch is 128, so an epoch has 24 steps instead of 47, with the same learning
#       rate. That is another training, not a wrong one. Compare it with one process and
#       ``--batch-size 128``.
#
#    .. fold:: You stop with ``if accuracy > 0.97: break``, at the end of the loop, which only rank 0 reaches. What happens?
#
#       Rank 0 leaves the loop and ends its group. The others start the next epoch and wait for rank
#       0: they fail when its connection closes, or hang until a timeout. After rank 0
#       has saved, let every rank test the accuracy, which is the same: put rank 0's lines under
#       ``if dist.get_rank() == 0:`` instead of the ``continue``.
