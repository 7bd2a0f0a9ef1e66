# %% [markdown]
"""
Batch size and learning rate
============================
"""

# %% [markdown]
# "Two GPUs do not give what one GPU gave" is the most frequent surprise with DDP, and nearly always
# it is the :term:`batch size`. This page says what changes with the number of processes, proves what
# does not, and shows what to do about the learning rate.
#
# What a step sees
# ----------------
#
# ``--batch_size`` counts the samples of *one* process. All together take
#
#    batch size × number of processes = global batch
#
# in a step. DDP averages the gradients of the processes. Each of them is the gradient of a mean over
# equally many samples, and the mean of such means is the mean over all of them: **the gradient of the
# global batch**. The optimizer cannot tell it from one process with that batch size.
#
# (The mean of means is the mean only where the shares are equal. For losses averaged over a varying
# number of tokens they are not; then sum, divide by the count that an all-reduce
# gives, and multiply by the number of processes, because DDP divides by it.)

# %% [markdown]
# The proof
# ---------
#
# The same global batch of 64, by the script for one device and by two processes. ``distance.py``
# prints the largest difference between any two weights, and between any two momenta:
#
# .. run::
#    :expect: ^two.pt .* weights [\d.]+e-0[789]
#    :show: 0 4
#
#    python single_gpu.py 2 2 --batch_size 64 --checkpoint_path single.pt | tail -n 1
#    NPROC=2 python multigpu.py 2 2 --batch_size 32 --checkpoint_path two.pt | tail -n 1
#    python docs/labs/distance.py single.pt two.pt
#
# Sums are taken in another order, and the last bits of the floating-point numbers differ: less than
# a millionth after 64 steps. (``multigpu.py`` with one process differs in no bit.)
#
# It works because everything else is equal too: the initial weights (one seed), the order of the
# samples (one permutation, dealt out), the data (the same on every process). Where two runs of
# yours differ, look there first.

# %% [markdown]
# What happens if you only add processes
# --------------------------------------
#
# With 32 samples a process, two processes take half as many steps in an epoch, each with the gradient
# of a larger batch. At the same learning rate they have moved about half as far:

# %%
import lab

logs = {
    "1 process": lab.run("python single_gpu.py 50 10"),
    "2 processes": lab.two_processes(),
}
curves = {name: [loss for _, loss, *_ in lab.epochs(log)][:12] for name, log in logs.items()}

figure, axes = lab.picture(
    "Loss over epochs: after 4 epochs "
    + ", ".join(f"{name}: {curve[3]:.3f}" for name, curve in curves.items())
)
for name, curve in curves.items():
    axes.plot(range(1, 13), curve, label=name)
axes.set(xlabel="epoch", ylabel="loss", yscale="log")
axes.legend()

# %% [markdown]
# What to do
# ----------
#
# - **To get the same result on more devices**, keep the global batch: divide the batch size by the
#   number of processes. It is the right first step, since it shows whether your changes are correct.
# - **To go faster**, let the global batch grow, and the learning rate with it. For SGD the usual
#   rule is linear: twice the batch, twice the rate, after a few epochs in which it climbs to that
#   (`Goyal et al. 2017 <https://arxiv.org/abs/1706.02677>`__: batch 8,192 on 256 GPUs, with the
#   accuracy of a batch of 256). For Adam the square root of the factor is more common. Neither rule
#   holds for ever: there is a size beyond which a larger batch buys nothing.
# - **Do not** multiply the gradients by the number of processes. DDP averages; libraries that *sum*
#   them make the learning rate depend on the number of devices without saying so.
#
# The linear rule, tried: twice the rate for two processes. One line of the script changes, ``lr=1e-3``
# to ``lr=2e-3``:

# %%
log = lab.run(
    "sed 's/lr=1e-3/lr=2e-3/' multigpu.py > scaled.py", "NPROC=2 python scaled.py 12 12"
)
scaled = {
    "1 process": curves["1 process"],
    "2 processes": curves["2 processes"],
    "2 processes, twice the rate": [loss for _, loss, *_ in lab.epochs(log)],
}

figure, axes = lab.picture(
    "Loss over epochs, with twice the learning rate for two processes: after 4 epochs "
    + ", ".join(f"{name}: {curve[3]:.3f}" for name, curve in scaled.items())
)
for (name, curve), style in zip(scaled.items(), ("-", "-", "--"), strict=True):
    axes.plot(range(1, 13), curve, style, label=name)
axes.set(xlabel="epoch", ylabel="loss", yscale="log")
axes.legend()

# %% [markdown]
# It nearly falls on the curve of one process. That it goes so well is owed to the problem: a linear
# model. On yours, measure.
