# %% [markdown]
"""
Multi-GPU with DDP
==================
"""
# %% [markdown]
# .. run::
#    :expect: loss 0\.02
#    :show: 3 2
#
#    {multigpu}
#
# Distributing input data
# -----------------------
#
# .. lesson-diff:: multigpu
#    :edit: distribute-the-data
#    :confirmed: e06264dce965
#
#    Because.
#
# One process for each device
# ---------------------------
#
# .. lesson-diff:: multigpu
#    :edit: start-the-processes
#    :confirmed: 1f7362ffa301
#
#    Because.
#
# The whole script
# ----------------
#
# .. lesson-script:: multigpu
