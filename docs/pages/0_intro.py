# %% [markdown]
"""
Introduction
============
"""
# %% [markdown]
# Hello.
#
# .. run::
#    :expect: loss 0\.02
#    :show: 3 2
#
#    {single_gpu}
# %%
import lab

log = lab.run("python single_gpu.py 50 10")
figure, axes = lab.picture("Loss falls from 1.69 to 0.029 over 50 epochs")
axes.plot([loss for _, loss, _, _ in lab.epochs(log)])
axes.set(xlabel="epoch", ylabel="loss", yscale="log")
