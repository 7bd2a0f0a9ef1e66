#!/bin/sh
# torchrun on every node; they meet at one of them. The same command on each, in any order:
#
#   NNODES=2 NPROC=2 ENDPOINT=node1:29500 sh launch/torchrun_c10d.sh multinode.py 50 10
#
# A lost node may come back, with this command. NNODES=1:2 goes on without it meanwhile.
set -eu
: "${NNODES:?how many nodes, as NNODES=2}" "${ENDPOINT:?where they meet, as ENDPOINT=node1:29500}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 # restarted gloo workers need stores of their own
# A silent agent is given up after 4 s, not 15; nodes beyond the fewest are waited for 3 s,
# not 30.
conf=last_call_timeout=3,keep_alive_interval=2,keep_alive_max_attempt=2
# Too few nodes: nobody says a word, and all end after JOIN_TIMEOUT seconds. If the endpoint
# itself does not answer they try twice, a minute each, or what of JOIN_TIMEOUT there is.
JOIN_TIMEOUT="${JOIN_TIMEOUT:-600}"
conf="$conf,join_timeout=$JOIN_TIMEOUT"
[ "$JOIN_TIMEOUT" -ge 120 ] || conf="$conf,read_timeout=$(((JOIN_TIMEOUT + 1) / 2))"
# Where the endpoint is, a port that is taken ends it; or it would ask whoever has that
# port, for ever.
case ${ENDPOINT%:*} in localhost | "$(hostname)") conf="$conf,is_host=1" ;; esac
exec torchrun --nnodes="$NNODES" --nproc_per_node="${NPROC:-1}" --max-restarts="${MAX_RESTARTS:-3}" \
    --rdzv-backend=c10d --rdzv-endpoint="$ENDPOINT" --rdzv-id="${JOB:-job}" \
    --rdzv-conf="$conf" "$@"
