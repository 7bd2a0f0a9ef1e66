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
# Dropout draws random numbers, and ``mingpt@5`` does not save the state of their generator. Here
# ``kill.py`` kills a worker after step 80, so the steps after the checkpoint of step 50 run twice:
#
# .. run::
#    :expect: Resuming after step 50
#    :mark: Step +[678]0 \| train
#
#    . launch/restarts.sh; python docs/labs/kill.py 80 python -m tools.series run mingpt@5 --data LICENSE --model gpt-nano --block_size 16 --dropout 0.2 --total_steps 100 --save_every 50 --log_every 10
#
# Steps 60, 70 and 80 have other losses the second time, because their dropout differs.
# Also, training waits while a checkpoint is written, and a checkpoint of GPT-2 has 1.5 GB.
#
# .. lesson-diff:: mingpt
#    :edit: save-everything-meanwhile
#    :confirmed: 28561b4f666b
#
#    Each rank seeds its generator differently, so different ranks drop different units. Before a
#    save, ``all_gather_object`` collects all generators' states for the checkpoint. Every rank must
#    call this :term:`collective`, so it comes before the ``return``.
#
#    ``CheckpointFile.save`` copies the checkpoint to host memory and returns. A thread writes the
#    copy while the next steps run. If the run is killed before the copy is on the disk, it resumes
#    from the previous checkpoint. A save first waits until the previous one is on the disk, so
#    the file is at most 2 × ``--save_every`` steps old.
#
#    The file also records the model and the text, and a run with another model or text refuses it.
#
# .. run::
#    :expect: (?s)Step +80 \| train loss (\S+) .*Step +80 \| train loss \1
#    :mark: Step +[678]0 \| train
#
#    . launch/restarts.sh; python docs/labs/kill.py 80 python -m tools.series run mingpt@6 --data LICENSE --model gpt-nano --block_size 16 --dropout 0.2 --total_steps 100 --save_every 50 --log_every 10
#
# The repeated steps have the same losses, to the last digit. In this figure, the dots of
# ``mingpt@6`` are therefore in the middle of their rings:

# %%
import re

import lab

logs = {
    "mingpt@5": lab.run(
        ". launch/restarts.sh; python docs/labs/kill.py 80 python -m tools.series run mingpt@5 --data LICENSE "
        "--model gpt-nano --block_size 16 --dropout 0.2 --total_steps 100 --save_every 50 --log_every 10"
    ),
    "mingpt@6": lab.run(
        ". launch/restarts.sh; python docs/labs/kill.py 80 python -m tools.series run mingpt@6 --data LICENSE "
        "--model gpt-nano --block_size 16 --dropout 0.2 --total_steps 100 --save_every 50 --log_every 10"
    ),
}
losses, apart = {}, {}
for stage, log in logs.items():
    ran = log.split("Resuming")  # before the kill, and after the restart
    found = [re.findall(r"Step +(\d+) \| train loss ([\d.]+)", part) for part in ran]
    first, second = ({int(step): float(loss) for step, loss in part} for part in found)
    losses[stage] = {step: loss for step, loss in first.items() if step >= 50}, second
    apart[stage] = max(abs(first[step] - second[step]) for step in first.keys() & second)

figure, axes = lab.picture(
    "Training losses from step 50, before the kill and after the restart. The largest difference "
    "between a step and its repetition: "
    + ", ".join(f"{most:.2g} with {stage}" for stage, most in apart.items())
    + ".",
    columns=2, sharex=True, sharey=True,
)  # fmt: skip
for place, (stage, (first, second)) in zip(axes, losses.items(), strict=True):
    rings = {"markersize": 9, "markerfacecolor": "none", "linewidth": 1}
    place.plot(first.keys(), first.values(), "o-", **rings, label="first time")
    place.plot(second.keys(), second.values(), ".", label="after the restart")
    place.set(title=stage, xlabel="step")
axes[0].set(ylabel="loss")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)

# %% [markdown]
# Stopping when asked to
# ----------------------
#
# Before Slurm ends a job at its time limit, or Kubernetes ends a pod, it sends SIGTERM, and by
# default kills the processes 30 seconds later. On SIGTERM, ``mingpt@6`` ends at once. Here
# ``stop.py`` sends the signal after step 40 to ``torchrun``, which passes it on to its workers.
# (Delete ``mingpt_6.pt`` of the runs above first, or this one resumes.)
#
# .. run::
#    :expect: No such file
#    :mark: SIGTERM|No such file
#    :status: 2
#
#    python docs/labs/stop.py 40 python -m tools.series run mingpt@6 --data LICENSE --model gpt-nano --block_size 16 --total_steps 100000 --save_every 100000 --eval_every 100000 --log_every 20 || echo "status $?"
#    ls mingpt_6.pt
#
# There is no checkpoint, so all 40 steps are lost.
#
# .. lesson-diff:: mingpt
#    :edit: stop-when-asked
#    :confirmed: 001a86c5c9f1
#
#    The signal handler only sets a flag. It must not save, because Python may run it in the middle
#    of a step.
#
#    A rank must not act on its own flag either. The signal reaches the ranks at different moments,
#    and a rank that stops one step early makes the others hang. So the ranks add up their flags in
#    every step. The flags have their own :term:`process group`,
#    on the CPU, and their all-reduce overlaps the step, so no GPU waits for it.
#
#    Once told to stop, the ranks save without another validation, which might take too long. They
#    wait until the checkpoint is on the disk, and for each other. ``os._exit`` ends the process
#    with a status other than 0. If only a worker got the signal, ``torchrun`` restarts all workers.
#    If no restart is left, or if ``torchrun`` itself got the signal, it fails, and a scheduler can
#    start the job again.
#
# .. run::
#    :expect: Resuming after step \d+[\s\S]*mingpt_7\.pt has
#    :status: 1
#    :mark: Step +[4-9]\d \| checkpoint|Resuming
#
#    python docs/labs/stop.py 40 python -m tools.series run mingpt@7 --data LICENSE --model gpt-nano --block_size 16 --total_steps 100000 --save_every 100000 --eval_every 100000 --log_every 20 || echo "status $?"
#    python -m tools.series run mingpt@7 --data LICENSE --model gpt-nano --block_size 16 --total_steps 240 --log_every 60
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main --data LICENSE --block_size 16 --checkpoint_path mingpt_7.pt |& grep main.py:
#
# The ranks save at the end of the step in which they agree, and the second run resumes there, so no
# step is lost. (To continue the same training, repeat the same command: the smaller
# ``--total_steps`` here changes the learning rate.) The third command asks for a larger model, so
# the trainer refuses the checkpoint.
#
# .. fold:: The same signal after a failure
#
#    ``torchrun`` also sends SIGTERM to the workers that survive a failure. They try to stop
#    together, notice that a rank is missing, and end. With NCCL they may not notice it, and
#    ``torchrun`` kills them after 30 seconds.

# %% [markdown]
# What could go wrong
# -------------------
#
# **A scheduler that waits too briefly.** If the scheduler kills the processes during the save, the
# previous checkpoint is undamaged. ``torchrun`` itself waits 30 seconds, unless you set
# ``--shutdown-timeout`` (:doc:`which_rank`).

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
#       No. The samples are the same, and both ranks restore their generators. But each rank now
#       takes half of the batch instead of a quarter, so the dropout masks differ.
#
#    .. fold:: Each rank looks at its own flag after a step, and stops if it is set. What can go wrong?
#
#       The signal can arrive after one rank has looked and before another looks. The second rank
#       then leaves the loop, while the first starts a step and waits for the other's gradients.
