# %% [markdown]
"""
Batch size and learning rate
============================
"""

# %% [markdown]
# **You will be able to** say why two GPUs give a different result than one if you
# change nothing else, and choose the
# :term:`batch size` and the learning rate for any number of processes.
#
# **You need** the script of :doc:`2_multigpu`.
#
# What a step uses
# ----------------
#
# In the first four scripts, ``--batch_size`` is the number of samples that *one process* takes per
# step. All processes together take
#
#    batch size × number of processes = global batch
#
# DDP averages the gradients of the processes. As :doc:`1_theory` explains, this average is **the
# gradient of the global batch**, so the optimizer makes the same update as one process that takes
# the global batch alone. (Dropout and batch normalisation are exceptions, because they depend on
# how the batch is divided.)
#
# The average is wrong if the ranks have different numbers of samples or tokens: *A loss over tokens
# or with weights*, in :doc:`your_script`, corrects it.

# %% [markdown]
# A test
# ------
#
# These three runs divide a global batch of 64 among one, two and four processes. ``distance.py``
# prints the largest difference of any weight, and of any momentum of the optimizer, between the
# final checkpoints:
#
# .. run::
#    :expect: ^four.pt .* weights [\d.]+e-0[789]
#    :show: 0 1
#    :mark: ^(two|four).pt
#
#    python single_gpu.py 12 12 --batch_size 64 --checkpoint_path one.pt
#    NPROC=2 python multigpu.py 12 12 --batch_size 32 --checkpoint_path two.pt
#    NPROC=4 python multigpu.py 12 12 --batch_size 16 --checkpoint_path four.pt
#    python docs/labs/distance.py one.pt two.pt four.pt
#
# After 384 steps the weights differ by less than a millionth. This is rounding, because several
# processes add gradients in another order.

# %%
import lab

log = lab.run(
    "python single_gpu.py 12 12 --batch_size 64 --checkpoint_path one.pt",
    "NPROC=2 python multigpu.py 12 12 --batch_size 32 --checkpoint_path two.pt",
    "NPROC=4 python multigpu.py 12 12 --batch_size 16 --checkpoint_path four.pt",
    "python docs/labs/distance.py one.pt two.pt four.pt",
)
curves = [loss for _, loss, *_ in lab.epochs(log)]
losses = {1: curves[:12], 2: curves[12:24], 4: curves[24:]}
largest = max(max(each) - min(each) for each in zip(*losses.values(), strict=True))

figure, axes = lab.picture(
    "Loss over epochs with 1, 2 and 4 processes that share a batch of 64: one curve. "
    f"At each epoch, the three losses differ by less than {largest + 1e-5:.5f}."
)
for (number, curve), style, width in zip(losses.items(), ("-", "--", "o"), (6, 3, 1), strict=True):
    label = f"{number} process{'es' * (number > 1)}"
    axes.plot(range(1, 13), curve, style, linewidth=width, label=label)
axes.set(xlabel="epoch", ylabel="loss", yscale="log")
axes.legend()

# %% [markdown]
# If two of your runs differ, check first that everything else is equal: the data, the initial
# weights and the order of the samples (one permutation, distributed over the ranks;
# :doc:`beyond_random_seed_offset` shows ranks that draw their own).

# %% [markdown]
# If you only add processes
# -------------------------
#
# With 32 samples per process, two processes make half as many steps per epoch as one. The learning
# rate is the same, so the weights move about half as far per epoch: see the figure below.

# %% [markdown]
# What to do
# ----------
#
# - **To get the same result on more devices**, keep the global batch: divide the batch size by the
#   number of processes. Do this first, because it shows whether your changes are correct.
# - **To train faster**, keep the batch size per process and raise the learning rate with the global
#   batch. For SGD the usual rule is linear: twice the batch, twice the rate, raised gradually over
#   the first epochs. (`Goyal et al. 2017 <https://arxiv.org/abs/1706.02677>`__ trained with a batch
#   of 8,192 on 256 GPUs as accurately as with a batch of 256.) For Adam, four times the batch often
#   gets twice the rate. Both rules have a limit: beyond a certain size, a larger batch gains
#   nothing.
# - **Do not** multiply the averaged gradients by the number of processes to get their sum. With SGD
#   this multiplies the learning rate.
#
# Here the rate is doubled:

# %%
logs = {
    "1 process": lab.run("python single_gpu.py 50 10"),
    "2 processes": lab.run("python multigpu.py 50 10"),
    "2 processes, twice the rate": lab.run(
        "sed 's/lr=1e-3/lr=2e-3/' multigpu.py > scaled.py", "NPROC=2 python scaled.py 12 12"
    ),
}
curves = {name: [loss for _, loss, *_ in lab.epochs(log)][:12] for name, log in logs.items()}

figure, axes = lab.picture(
    "Loss over epochs, with twice the learning rate for two processes: after 4 epochs "
    + ", ".join(f"{name}: {curve[3]:.3f}" for name, curve in curves.items())
)
for (name, curve), style in zip(curves.items(), ("-", "-", "--"), strict=True):
    axes.plot(range(1, 13), curve, style, label=name)
axes.set(xlabel="epoch", ylabel="loss", yscale="log")
axes.legend()

# %% [markdown]
# At twice the rate, two processes are close to one. This is easy for a linear model, so measure it
# with yours.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: batch_and_learning_rate
#    :next: :doc:`3_fault_tolerance`, where processes die. :doc:`5c_fast` says when two processes beat one
#
#    You can now choose the batch size and the learning rate for more devices.
#
#    .. fold:: You replace one GPU with 256 samples per step by 8 GPUs with 32 each. Which learning rate?
#
#       The same one. The global batch is still 256, so the averaged gradient is the same up to
#       rounding.
#
#    .. fold:: You go from 64 samples per step to 256 and, by the linear rule, from a rate of 0.1 to 0.4. Why is that plausible?
#
#       If the gradient hardly changes during four small steps, one step at four times the rate
#       moves the weights as far as those four. At a large rate the gradient changes, and the rule
#       fails.
