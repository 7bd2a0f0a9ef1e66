#!/bin/sh
# The same in one command, on every node, in any order:
#
#   NNODES=2 NPROC=2 ENDPOINT=node1:29500 sh launch/torchrun_c10d.sh multinode.py 50 10
#
# A lost node may come back, with this command. NNODES=1:2 goes on without it meanwhile.
set -eu
: "${NNODES:?how many nodes, as NNODES=2}"
LAUNCH=$(dirname "$0")
. "$LAUNCH/torchrun_env.sh"
# Or who asks for 2 nodes could take in one that asks for 3, and both would train, as two.
exec torchrun --nnodes="$NNODES" --rdzv-id="$PET_RDZV_ID-$NNODES" "$@"
