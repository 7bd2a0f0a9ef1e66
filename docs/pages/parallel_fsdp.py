# %% [markdown]
"""
FSDP: each process keeps a shard
================================
"""

# %% [markdown]
# **You will be able to** train a model whose weights, gradients and optimizer state do not fit into
# one GPU, and resume it on another number of GPUs.
#
# **You need** the trainer of :doc:`5d_gpus`. :doc:`parallel_zero` shows by hand what FSDP does.
#
# With DDP, each process keeps every weight, its gradient and AdamW's two averages. FSDP (*fully
# sharded data parallel*, `Zhao et al. 2023 <https://arxiv.org/abs/2304.11277>`__) cuts each of
# these tensors into as many shards as there are processes, and each process keeps one. On 8 GPUs, 7
# billion weights take 14 GB on each instead of 112.
#
# A matrix product needs a whole weight, though. So before a layer computes, the processes send each
# other their shards of this layer (an *all-gather*), and free the whole weights afterwards. In
# ``backward()`` they gather the layer again. Then each process needs the mean gradient of one
# shard, the one that it keeps: a *reduce-scatter* adds up the gradients of all processes and gives
# each one its part. FSDP computes what DDP computes, so the results must be equal up to rounding.

# %% [markdown]
# Sharding each block
# -------------------
#
# .. lesson-diff:: fsdp
#    :edit: shard-each-block
#    :confirmed: 28e585a6fd17
#
#    **The shards.** ``fully_shard`` moves the weights of a module to the device, and replaces each
#    by a ``DTensor`` with this process's shard, a part of its rows. What one call covers is
#    gathered together. With a call per block, about two blocks are whole at a time on a GPU, the
#    current and the next, besides the *root*, which is what the last call covers: the embeddings
#    and the last ``LayerNorm``. The calls stay out of the model's code, which is still that of one
#    GPU.
#
#    **The optimizer** must be made afterwards. It then finds shards where it expects weights, so
#    its state is sharded as well, and ``step()`` updates the shards without a message.
#
#    **DDP goes**, and the options of its buckets with it. A block is FSDP's bucket.
#
# The probe counts what each process keeps:
#
# .. run::
#    :expect: (?s)Step +20 \| train loss 3\.8287.*holds 44424 of 88896 weights
#    :show: 0 0
#    :mark: train loss|holds
#
#    python -m tools.series run --probe fsdp@1 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --save_every 20 --log_every 5
#
# Now the same text, model and steps with DDP. The losses are the same:
#
# .. run::
#    :expect: Step +20 \| train loss 3\.8287
#    :show: 0 0
#    :mark: train loss
#
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --save_every 20 --log_every 5

# %% [markdown]
# Sending gradients once per step
# -------------------------------
#
# Let each process take its share of the batch in two micro-batches. With ``no_sync``
# (:doc:`5c_fast`), DDP sent gradients with the last one only. FSDP sends after each. Four modules
# are sharded, the three blocks and the root, so two micro-batches make eight reduce-scatters:
#
# .. run::
#    :expect: 8 reduce-scatters per step
#    :show: 0 0
#    :mark: reduce-scatters
#
#    python -m tools.series run --probe fsdp@1 --micro_batch_size 3 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --save_every 20 --log_every 20
#
# .. lesson-diff:: fsdp
#    :edit: send-once-per-step
#    :confirmed: c8aeb8296905
#
#    This is FSDP's ``no_sync`` for gradients. The weights are still gathered for each micro-batch.
#    Until the last one, each process adds up whole gradients of *all* weights, because only a
#    reduce-scatter cuts them into shards. They take 4 bytes per weight, so leave the line out if
#    memory is short.
#
# .. run::
#    :expect: 4 reduce-scatters per step
#    :show: 0 0
#    :mark: reduce-scatters
#
#    python -m tools.series run --probe fsdp@2 --micro_batch_size 3 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --save_every 20 --log_every 20

# %% [markdown]
# Whole tensors in the checkpoint
# -------------------------------
#
# The checkpoint of ``fsdp@2`` has the shards of the process that wrote it, so half of the model is
# lost. A checkpoint of whole tensors loses nothing, and resumes on any number of processes.
#
# .. lesson-diff:: fsdp
#    :edit: save-whole-tensors
#    :confirmed: fede2ff5a6c3
#
#    **Saving.** ``full_tensor()`` gathers one ``DTensor``. It is a :term:`collective`, so every
#    rank must call it, in the same order. So it comes before the ``return`` of the ranks that do
#    not save. A GPU has one whole tensor at a time; host memory has them all.
#
#    **Loading.** ``distribute_tensor`` is the way back: each rank keeps its own shard of a tensor
#    that all ranks have. ``shards`` needs a sharded example of each tensor. For the weights, that
#    is the model. The optimizer has no state before its first step, so the trainer makes one step,
#    on any batch. The checkpoint then replaces all that this step changed.
#
#    **The broadcast** uses another group, over gloo. Over NCCL it would pass through the memory of the
#    GPUs, and there is no room for the whole model.
#
# DDP saves whole tensors, too. Here DDP trains 20 steps. FSDP resumes from DDP's checkpoint with
# four processes, and DDP with two. ``distance.py`` compares the results:
#
# .. run::
#    :expect: (?s)Resuming after step 20.*fsdp.pt from ddp.pt: weights \d\.\de-0[678]
#    :mark: Resuming|weights
#
#    echo --data LICENSE --model gpt-nano --block_size 16 --learning_rate 1e-3 --min_learning_rate 1e-3 > options
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main $(cat options) --total_steps 20 --checkpoint_path ddp.pt | tail -n 1
#    cp ddp.pt fsdp.pt
#    torchrun --standalone --nproc_per_node=4 -m parallel.fsdp $(cat options) --total_steps 40 | grep -v val
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main $(cat options) --total_steps 40 --checkpoint_path ddp.pt | grep -v val
#    python docs/labs/distance.py ddp.pt fsdp.pt
#
# So a run that has outgrown DDP continues under FSDP, and ``mingpt.sample`` reads its checkpoint.
# As with DDP, a kill costs the steps since the last whole save (:doc:`5b_robust`).

# %% [markdown]
# What it costs
# -------------
#
# Here are the collectives of one process of eight in a step of two micro-batches, with the bytes of
# the whole tensors. (The lab's vocabulary has 128 tokens, so this model has 91,824 weights.) They
# are counted over torch's ``fake`` backend, which answers at once and so says nothing about time:
#
# .. run::
#    :expect: (?s)14 all_gathers of 1,413,120 bytes, 4 .*14 all_gathers of 706,560.*: all_gather all_gather block 2 reduce_scatter all_gather block 1
#
#    python docs/labs/fsdp_messages.py
#
# - **Messages.** DDP's all-reduce sends about two numbers per weight and step on each process. Over
#   NCCL, FSDP sends up to three with one micro-batch: one for the gradients, and one for each time that the
#   weights are gathered. ``fully_shard(part, reshard_after_forward=False)`` keeps a block whole
#   from forward to backward, which saves one of the three and costs the memory. The root, sharded
#   last, is kept by default, because ``backward()`` needs it first, so four modules take seven
#   all-gathers per micro-batch.
# - **Precision.** Under autocast FSDP gathers fp32. ``fully_shard(part,
#   mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))`` gathers half as many bytes, and
#   sends gradients in ``bfloat16``, too. ``reduce_dtype=torch.float32`` keeps their sums in fp32.
# - **Waiting.** In ``backward()`` FSDP asks for the weights of the next block before the current
#   one computes: the last line has ``all_gather`` twice before ``block 2``. On GPUs that message
#   travels in another stream, behind the computing (*prefetching*). A small block computes too
#   briefly to hide it.
# - **Host memory.** Each process builds the whole model before it is sharded, and holds the whole
#   checkpoint when it resumes. If the host lacks room, build the model on the device ``meta`` and
#   fill the shards after ``fully_shard``.
# - **Saving.** All shards travel to all processes, though one per node keeps them. Very large
#   models are saved in shards instead: :doc:`parallel_dcp`.
#
# Nothing on this page was measured on a GPU yet.

# %% [markdown]
# From FSDP1 to FSDP2
# -------------------
#
# FSDP1, ``FullyShardedDataParallel``, wraps a module, and lays that module's parameters in one flat
# tensor. FSDP2, ``fully_shard``, changes the module itself and leaves its parameters apart, so that
# frozen ones need no gradients. What a script for FSDP1 says, and what FSDP2 wants:
#
# ====================================  ============================================================
# FSDP1                                 FSDP2
# ====================================  ============================================================
# ``auto_wrap_policy``                  a call for each block, and one for the model
# ``FULL_SHARD``, ``SHARD_GRAD_OP``     ``reshard_after_forward=True``, ``False``
# ``HYBRID_SHARD``                      a mesh of two dimensions (:doc:`parallel_hsdp`)
# ``NO_SHARD``                          DDP
# ``MixedPrecision``                    ``MixedPrecisionPolicy``; buffers stay as they are
# ``CPUOffload(offload_params=True)``   ``offload_policy=CPUOffloadPolicy()``
# ``model.no_sync()``                   ``model.set_requires_gradient_sync(False)``
# ``model.clip_grad_norm_(1.0)``        ``torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)``
# ``forward_prefetch=True``             ``set_modules_to_forward_prefetch``, for each block
# ``sync_module_states=True``           ``set_model_state_dict``, ``broadcast_from_rank0`` (below)
# ``StateDictType``                     ``full_tensor()``, or :doc:`parallel_dcp`
# ``use_orig_params``                   nothing: they are always the original ones
# ====================================  ============================================================
#
# ``broadcast_from_rank0=True`` of StateDictOptions needs ``full_state_dict=True`` beside it.

# %% [markdown]
# What could go wrong
# -------------------
#
# **Saving hangs.** One rank alone calls ``full_tensor()``, or ``get_model_state_dict`` with
# ``full_state_dict=True``, below ``if rank == 0:``. The others wait in their next collective.
#
# **"is shared with a parameter already managed by another FSDP group".** Two modules with one tied
# weight were sharded by two calls. Here ``wte`` and ``lm_head`` share a weight, and both belong to
# the root.
#
# **"got mixed torch.Tensor and DTensor".** A sharded weight met a plain tensor outside of
# ``forward()``. Convert one: ``full_tensor()`` or ``distribute_tensor``.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: parallel_fsdp
#    :next: :doc:`parallel_hsdp`, for several nodes
#    :also: torch.distributed.tensor <torch.distributed.tensor>, torch.distributed.checkpoint <torch.distributed.checkpoint>
#
#    You can now shard a model with two lines, keep its checkpoints independent of the number of
#    processes, and say what FSDP sends.
#
#    .. fold:: A model of 3 billion weights trains with AdamW in fp32 on 8 GPUs. How much does each GPU keep?
#
#       3 × 16 = 48 GB, divided by 8: 6 GB, besides the activations, two whole blocks and the root.
#
#    .. fold:: Rank 1 gets one batch less than rank 0. Under DDP without buffers, rank 0 would wait in ``backward()``. And here?
#
#       Rank 0 already waits in ``forward()``, because each block is gathered there. The same holds
#       for a validation that runs on rank 0 alone.
