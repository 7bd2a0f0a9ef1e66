#!/bin/sh
# Lets torchrun replace workers that die. Source it once per shell, then start torchrun as usual:
#
#   . launch/restarts.sh
#   torchrun --standalone --nproc_per_node=2 multigpu_torchrun.py
#
export PET_MAX_RESTARTS="${MAX_RESTARTS:-3}" # torchrun reads it for --max-restarts, by default 0
# In torchrun's own store, restarted gloo workers would find addresses of dead ones (pytorch#135712).
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" # torchrun sets 1 for several workers, but warns
