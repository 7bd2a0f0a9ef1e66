#!/bin/sh
# Run this same command on every node, in any order:
#
#   NNODES=2 NPROC=2 ENDPOINT=node1:29500 sh launch/torchrun_c10d.sh multinode.py 50 10
#
# A lost node may rejoin by this command. With NNODES=1:2 the others continue meanwhile.
set -eu
[ "${1:-}" = --help ] && exec sed -n '2,/^[^#]/s/^# //p' "$0"
: "${NNODES:?how many nodes, as NNODES=2}" "${1:?what to run (--help has an example)}"
LAUNCH=$(dirname "$0")
. "$LAUNCH/torchrun_env.sh"
[ -n "${JOB:-}" ] || # a scheduler, which sets JOB, starts the other nodes itself
    echo "run on each of the $NNODES nodes: NNODES=$NNODES NPROC=$PET_NPROC_PER_NODE" \
        "ENDPOINT=$ENDPOINT sh $0 $*" >&2
# Otherwise a node started for 2 could meet one started for 3, and both would train, as two.
exec torchrun --nnodes="$NNODES" --rdzv-id="$PET_RDZV_ID-$NNODES" "$@"
