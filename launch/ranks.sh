#!/bin/sh
# One process that a scheduler has started: its numbers, under the names that torch reads. Started by
#
#   mpirun -np 4 -x MASTER_ADDR=node1 sh launch/ranks.sh python multinode.py 50 10   (Open MPI)
#   srun --ntasks=4 sh launch/ranks.sh python multinode.py 50 10                      (Slurm)
#
#   torch         Open MPI                        Slurm
#   RANK          OMPI_COMM_WORLD_RANK            SLURM_PROCID
#   WORLD_SIZE    OMPI_COMM_WORLD_SIZE            SLURM_NTASKS
#   LOCAL_RANK    OMPI_COMM_WORLD_LOCAL_RANK      SLURM_LOCALID
#   MASTER_ADDR   -x MASTER_ADDR=…                the first of SLURM_JOB_NODELIST
#
# What is set already stays. There are no restarts: a job that fails is started again by its scheduler.
set -eu
export RANK="${RANK:-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:?not started by mpirun or srun}}}"
export WORLD_SIZE="${WORLD_SIZE:-${OMPI_COMM_WORLD_SIZE:-${SLURM_NTASKS:-}}}"
export LOCAL_RANK="${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-}}}"
if [ -z "${MASTER_ADDR:-}" ] && [ -n "${SLURM_JOB_NODELIST:-}" ]; then
    MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
fi
export MASTER_ADDR="${MASTER_ADDR:-localhost}" MASTER_PORT="${MASTER_PORT:-29500}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "$@"
