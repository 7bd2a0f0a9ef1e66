#!/bin/sh
# Sets torchrun's rendezvous options through the environment: torchrun reads PET_RDZV_BACKEND
# for --rdzv-backend, and so on. After you source this, the short command is enough. (Without
# it, the command hangs silently for a quarter of an hour.) Source it in the folder that has
# launch/, or set LAUNCH to that folder. It needs launch/before.py and launch/restarts.sh.
#
#   ENDPOINT=node1:29500 . launch/torchrun_env.sh
#   torchrun --nnodes=2 multinode.py
#
# torchrun then starts one process per node. For more, set NPROC before you source this, or give
# torchrun --nproc_per_node, which overrides it.
#
: "${ENDPOINT:?where the nodes meet, as ENDPOINT=node1:29500}"
export PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT="$ENDPOINT" PET_RDZV_ID="${JOB:-job}"
# With is_host, torchrun on the endpoint's node fails if the port is taken. Otherwise all nodes
# would connect to whatever program has that port, and hang.
is_host=$(export NPROC JOB MAX_RESTARTS JOIN_TIMEOUT
    python3 "${LAUNCH:-launch}/before.py" "$ENDPOINT") || return
export PET_NPROC_PER_NODE="${NPROC:-1}"
. "${LAUNCH:-launch}/restarts.sh"
# torchrun gives up a silent agent after 4 s, not 15, and waits 3 s, not 30, for nodes beyond
# the minimum.
PET_RDZV_CONF=last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=4
# With too few nodes, all hang silently and exit after JOIN_TIMEOUT seconds. If the endpoint
# does not answer, they try for one to three minutes, or about a JOIN_TIMEOUT below two.
PET_RDZV_CONF="$PET_RDZV_CONF,join_timeout=${JOIN_TIMEOUT:-600}"
[ "${JOIN_TIMEOUT:-600}" -ge 120 ] ||
    PET_RDZV_CONF="$PET_RDZV_CONF,read_timeout=$(((JOIN_TIMEOUT + 1) / 2))"
export PET_RDZV_CONF="$PET_RDZV_CONF${is_host:+,$is_host}"
unset is_host
