# %% [markdown]
"""
Robust training
===============
"""

# %% [markdown]
# **You will be able to** save while training continues, resume with the same random
# numbers, and lose no step when a scheduler takes the machine away.
#
# **You need** the stage ``mingpt@5`` of :doc:`5a_exact`.

# %% [markdown]
# Saving everything, while training continues
# -------------------------------------------
#
# *Dropout* sets a random part of the activations to 0 in training. So a run has one more state:
# that of the random generator. ``mingpt@5`` does not save it. Here ``kill.py`` kills a worker after
# step 80. The checkpoint is of step 50, so the steps after it are run twice:
#
# .. run::
#    :expect: Resuming after step 50
#    :mark: Step +[678]0 \| train
#
#    python docs/labs/kill.py 80 python -m tools.series run mingpt@5 --data LICENSE --model gpt-nano --block_size 16 --dropout 0.2 --total_steps 100 --save_every 50 --log_every 10
#
# Steps 60, 70 and 80 have other losses the second time: the data are the same, but the dropout is
# not. Besides, training waits while a checkpoint is written, and that of GPT-2 has 1.5 GB.
#
# .. lesson-diff:: mingpt
#    :edit: save-everything-meanwhile
#    :confirmed: 28561b4f666b
#
#    Each rank seeds its generator differently, so different ranks drop different units. To save,
#    the ranks exchange the states of their generators, and the checkpoint gets all of them. After a
#    restart each rank gets its own back. If the number of processes has grown, a rank without a
#    saved state keeps the seed of its start. ``all_gather_object`` is a :term:`collective`: every
#    rank must call it, so it comes before the ``return``.
#
#    ``CheckpointFile.save`` copies the checkpoint to host memory and returns. A thread writes the
#    copy while the next steps run. The price is that a kill may come before the newest checkpoint
#    is on the disk: then the one before it counts. At most one save is under way, so a failure
#    never costs more than two intervals of steps.
#
#    The file also says which model and which text it belongs to, so that no other run overwrites
#    it.
#
# .. run::
#    :expect: (?s)Step +80 \| train loss (\S+) .*Step +80 \| train loss \1
#    :mark: Step +[678]0 \| train
#
#    python docs/labs/kill.py 80 python -m tools.series run mingpt@6 --data LICENSE --model gpt-nano --block_size 16 --dropout 0.2 --total_steps 100 --save_every 50 --log_every 10
#
# The repeated steps have the same losses, to the last digit.

# %% [markdown]
# Stopping when asked to
# ----------------------
#
# Schedulers send SIGTERM before they take a machine away, and wait about half a minute.
# ``mingpt@6`` ends at once. ``stop.py`` sends the signal to ``torchrun``, which passes it on to its
# workers, after step 40 of a run that would save much later:
#
# .. run::
#    :expect: No such file
#    :mark: SIGTERM|No such file
#    :status: 2
#
#    python docs/labs/stop.py 40 python -m tools.series run mingpt@6 --data LICENSE --model gpt-nano --block_size 16 --total_steps 100000 --save_every 100000 --eval_every 100000 --log_every 20 || echo "status $?"
#    ls mingpt_6.pt
#
# No checkpoint: all 40 steps are lost.
#
# .. lesson-diff:: mingpt
#    :edit: stop-when-asked
#    :confirmed: 001a86c5c9f1
#
#    The handler only sets a flag. It must not save, because Python may run it anywhere, even in the
#    middle of a step.
#
#    A rank must not act on its own flag either. The signal reaches the ranks at different moments,
#    and one that leaves a step early makes the others hang. So the ranks add up their flags in
#    every step, and all of them see the same sum after the same step. The flags travel through
#    their own :term:`process group`, on the CPU and beside the step, so no GPU waits for them.
#
#    Then all ranks save, without another validation, which might take too long. They wait until the
#    checkpoint is on the disk, and for each other. ``os._exit`` ends the process with a status that
#    is not 0, so a job scheduler that restarts failed jobs starts it again. The default, 143, is
#    what a shell reports for a process that SIGTERM ended. ``torchrun``, which the scheduler sees,
#    then ends with 1.
#
# .. run::
#    :expect: Resuming after step \d+
#    :status: 1
#    :mark: Step +[4-9]\d \| checkpoint|Resuming
#    :lines: 1 2
#
#    python docs/labs/stop.py 40 python -m tools.series run mingpt@7 --data LICENSE --model gpt-nano --block_size 16 --total_steps 100000 --save_every 100000 --eval_every 100000 --log_every 20 || echo "status $?"
#    python -m tools.series run mingpt@7 --data LICENSE --model gpt-nano --block_size 16 --total_steps 240 --log_every 60
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m mingpt.main --data LICENSE --block_size 16 --checkpoint_path mingpt_7.pt |& grep main.py:
#
# The ranks save at the end of the step in which they agree, and the second run resumes there. No
# step is lost. (To be brief, the second run has a smaller ``--total_steps``, and therefore another
# learning rate. To continue the same training, repeat the same command.)
#
# .. fold:: Who gets the signal
#
#    ``torchrun`` passes SIGTERM on to its workers. If only a worker gets it, ``torchrun`` starts
#    all of them again, up to ``--max-restarts`` times. ``torchrun`` also sends SIGTERM to the
#    survivors of a failure. They take it for a request, find that a rank is missing, and end. With
#    NCCL they may not notice; then ``torchrun`` kills them after 30 seconds.
#
# .. fold:: Why the handler is a closure over the flag alone
#
#    It outlives the trainer. If it kept a reference to ``self``, DDP and its process group would
#    outlive ``destroy_process_group``, and threads of the group could abort the interpreter as it
#    shuts down (:doc:`symptoms`, "terminate called"). ``os._exit`` ends the process without
#    shutting the interpreter down, so these threads can do no harm.

# %% [markdown]
# What could go wrong
# -------------------
#
# **A checkpoint of another run.** The trainer refuses a checkpoint of another model, vocabulary or
# text. Otherwise this run would overwrite it:
#
# .. run::
#    :expect: mingpt_7\.pt has
#    :status: 1
#    :lines: 3 3
#
#    python docs/labs/stop.py 40 python -m tools.series run mingpt@7 --data LICENSE --model gpt-nano --block_size 16 --total_steps 100000 --save_every 100000 --eval_every 100000 --log_every 20 || echo "status $?"
#    python -m tools.series run mingpt@7 --data LICENSE --model gpt-nano --block_size 16 --total_steps 240 --log_every 60
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m mingpt.main --data LICENSE --block_size 16 --checkpoint_path mingpt_7.pt |& grep main.py:
#
# **A scheduler that waits too briefly.** If the scheduler kills the processes during the save, the
# previous checkpoint is still on the disk, undamaged. A validation that has already begun runs to
# its end first; ``--val_tokens`` bounds it. ``torchrun`` waits 30 seconds, see :doc:`launchers`.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 5b_robust
#    :next: :doc:`5c_fast`
#
#    You can now save while training continues, repeat the random numbers after a restart, and stop
#    between two steps when a scheduler asks for it.
#
#    .. fold:: A run with dropout used four processes. You resume it with two. Are the losses still the same?
#
#       No. The samples are the same, and both ranks get back the state of their generator. But each
#       now takes half of the batch instead of a quarter, so the dropout masks differ. Without
#       dropout the losses would agree up to rounding.
#
#    .. fold:: Writing a checkpoint takes longer than ``--save_every`` steps. What happens?
#
#       ``save`` first waits until the last checkpoint is on the disk, so training waits for the
#       disk at every save. No checkpoint is skipped or mixed with another. Raise ``--save_every``
#       or use a faster disk.
#
#    .. fold:: Each rank looks at its own flag after a step, and stops if it is set. What can go wrong?
#
#       The signal can arrive after one rank has looked and before another does. One rank then
#       leaves the loop, and the other starts a step and waits for its gradients. The all-reduce of
#       the flags gives all ranks the same answer after the same step.
