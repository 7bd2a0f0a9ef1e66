#!/bin/sh
# The same by the environment: torchrun reads PET_RDZV_BACKEND for --rdzv-backend, and so
# on. Source it on every node, then the short command is enough. Without these variables it
# hangs, silently, for ten minutes.
#
#   ENDPOINT=node1:29500 . launch/torchrun_env.sh
#   torchrun --nnodes=2 multinode.py
#
: "${ENDPOINT:?where the nodes meet, as ENDPOINT=node1:29500}"
export PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT="$ENDPOINT" PET_RDZV_ID="${JOB:-job}"
export PET_NPROC_PER_NODE="${NPROC:-1}" PET_MAX_RESTARTS="${MAX_RESTARTS:-3}"
PET_RDZV_CONF=last_call_timeout=3,keep_alive_interval=2,keep_alive_max_attempt=2
export PET_RDZV_CONF="$PET_RDZV_CONF,join_timeout=${JOIN_TIMEOUT:-600}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
