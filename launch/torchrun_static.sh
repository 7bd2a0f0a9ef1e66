#!/bin/sh
# torchrun with numbered nodes; node 0 is the master. On node i, counted from 0:
#
#   NNODES=2 NODE_RANK=i NPROC=2 MASTER_ADDR=node1 sh launch/torchrun_static.sh multinode.py 50 10
#
# No restarts: with this rendezvous restarted gloo workers read the addresses of dead ones.
set -eu
[ "${1:-}" = --help ] && exec sed -n '2,/^[^#]/s/^# //p' "$0"
: "${NNODES:?how many nodes, as NNODES=2}" "${NODE_RANK:?the number of this node, from 0}"
: "${MASTER_ADDR:?the name of node 0, as MASTER_ADDR=node1}" "${1:?what to run (--help has an example)}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
python3 "$(dirname "$0")/before.py" "$MASTER_ADDR:${MASTER_PORT:-29500}" "$NODE_RANK" >/dev/null
exec torchrun --nnodes="$NNODES" --node-rank="$NODE_RANK" --nproc_per_node="${NPROC:-1}" \
    --master-addr="$MASTER_ADDR" --master-port="${MASTER_PORT:-29500}" \
    --rdzv-backend=static --max-restarts=0 --rdzv-conf="timeout=${JOIN_TIMEOUT:-600}" "$@"
