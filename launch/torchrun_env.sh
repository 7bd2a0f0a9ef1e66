#!/bin/sh
# What torchrun needs on every node to meet the others at one of them, by the
# environment: it reads PET_RDZV_BACKEND for --rdzv-backend, and so on. Source it, and the
# short command is enough. (Without, it waits, silently, for a quarter of an hour.) Do so in
# the folder that has launch/, or say where that is, as LAUNCH.
#
#   ENDPOINT=node1:29500 . launch/torchrun_env.sh
#   torchrun --nnodes=2 multinode.py
#
: "${ENDPOINT:?where the nodes meet, as ENDPOINT=node1:29500}"
export PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT="$ENDPOINT" PET_RDZV_ID="${JOB:-job}"
export PET_NPROC_PER_NODE="${NPROC:-1}" PET_MAX_RESTARTS="${MAX_RESTARTS:-3}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 # restarted gloo workers need stores of their own
# A silent agent is given up after 4 s, not 15; nodes beyond the fewest are waited for 3 s,
# not 30.
PET_RDZV_CONF=last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=4
# Too few nodes: nobody says a word, and all end after JOIN_TIMEOUT seconds. If the endpoint
# itself does not answer they try twice, a minute each, or what of JOIN_TIMEOUT there is.
PET_RDZV_CONF="$PET_RDZV_CONF,join_timeout=${JOIN_TIMEOUT:-600}"
[ "${JOIN_TIMEOUT:-600}" -ge 120 ] ||
    PET_RDZV_CONF="$PET_RDZV_CONF,read_timeout=$(((JOIN_TIMEOUT + 1) / 2))"
# With is_host, on the node of the endpoint, a port that is taken ends it; else it would ask
# whoever has that port, for ever, as would the others.
is_host=$(python3 "${LAUNCH:-launch}/before.py" "$ENDPOINT") || return
export PET_RDZV_CONF="$PET_RDZV_CONF${is_host:+,$is_host}"
unset is_host
