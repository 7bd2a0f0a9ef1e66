#!/bin/sh
# Translates a scheduler's variables into those that torch reads, in one process per rank.
# Start it by
#
#   mpirun --host node1:2,node2:2 --bind-to none -x PATH -x MASTER_ADDR=node1 \
#       sh launch/ranks.sh python multinode.py 50 10
#   srun --nodes=2 --ntasks-per-node=2 --kill-on-bad-exit=1 \
#       sh launch/ranks.sh python multinode.py 50 10
#
# Without --host or a scheduler, Open MPI starts all processes here. Without --bind-to none, it ties
# each to one core if there are one or two, else to a part of the node. -x passes on a variable.
#
#   torch              Open MPI                      Slurm
#   RANK               OMPI_COMM_WORLD_RANK          SLURM_PROCID
#   WORLD_SIZE         OMPI_COMM_WORLD_SIZE          SLURM_NTASKS
#   LOCAL_RANK         OMPI_COMM_WORLD_LOCAL_RANK    SLURM_LOCALID
#   LOCAL_WORLD_SIZE   OMPI_COMM_WORLD_LOCAL_SIZE    SLURM_STEP_TASKS_PER_NODE, as 2, 2(x4) or 2,1
#   MASTER_ADDR        -x MASTER_ADDR=node1          the first of SLURM_STEP_NODELIST
#   MASTER_PORT        29500                         from SLURM_JOB_ID: jobs may share a node
#
# It keeps variables that are set already. There are no restarts: submit a failed job again.
# Ask for GPUs by --gpus-per-node, because a script takes number LOCAL_RANK of those it sees.
set -eu
[ "${1:-}" = --help ] && exec sed -n '2,/^[^#]/s/^# //p' "$0"
: "${1:?what to run (--help has an example)}"
export RANK="${RANK:-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:?not started by mpirun or srun (--help has an example)}}}"
export WORLD_SIZE="${WORLD_SIZE:-${OMPI_COMM_WORLD_SIZE:-${SLURM_NTASKS:-}}}"
export LOCAL_RANK="${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-}}}"
tasks=$(echo "${SLURM_STEP_TASKS_PER_NODE:-}" | tr -s ',()x' '\n  ' |
    awk -v node="${SLURM_NODEID:-0}" '{ nodes += $2 ? $2 : 1 } node < nodes { print $1; exit }')
export LOCAL_WORLD_SIZE="${LOCAL_WORLD_SIZE:-${OMPI_COMM_WORLD_LOCAL_SIZE:-$tasks}}"
if [ -z "${MASTER_ADDR:-}" ] && [ -n "${SLURM_STEP_NODELIST:-}" ]; then
    names=$(scontrol show hostnames "$SLURM_STEP_NODELIST")
    MASTER_ADDR=$(echo "$names" | head -n 1)
fi
export MASTER_ADDR="${MASTER_ADDR:?the first of the nodes, as mpirun -x MASTER_ADDR=node1}"
export MASTER_PORT="${MASTER_PORT:-$((20000 + ${SLURM_JOB_ID:-9500} % 10000))}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
[ "$MASTER_PORT" -gt 0 ] 2>/dev/null && [ "$MASTER_PORT" -le 65535 ] || {
    echo "ranks.sh: MASTER_PORT is '$MASTER_PORT', but must be a number from 1 to 65535" >&2
    exit 2
}
case ${CUDA_VISIBLE_DEVICES-} in
*,*) ;;
[0-9]* | GPU-* | MIG-*) if [ "$LOCAL_WORLD_SIZE" -gt 1 ]; then
    echo "ranks.sh: $LOCAL_WORLD_SIZE processes see only one GPU ($CUDA_VISIBLE_DEVICES):" \
        "let each see all GPUs of its node, by --gpus-per-node in place of --gpus-per-task" >&2
    exit 2
fi ;;
esac
exec "$@"
