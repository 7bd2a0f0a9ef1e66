#!/bin/sh
# The second file of slurm_batch.sh: srun starts it on every node, and SLURM_NODEID is the
# node's number. In the batch script that variable is always 0, which is why there are two
# files.
set -eu
[ "${1:-}" = --help ] && exec sed -n '2,/^[^#]/s/^# //p' "$0"
export NODE_RANK="${SLURM_NODEID:?started by srun, from slurm_batch.sh}"
exec sh launch/torchrun_static.sh "$@"
