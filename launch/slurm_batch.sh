#!/bin/bash
# Slurm in two files, as many sites document it: this one is the batch script, and
# slurm_node.sh is what srun starts on each node. In the folder that has launch/ and the
# script:
#
#   sbatch --nodes=2 launch/slurm_batch.sh multinode.py 50 10
#
#SBATCH --job-name=ddp
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
# The lines of slurm.sh for GPUs, memory, time and the environment go here.
set -eu
[ "${1:-}" = --help ] && exec sed -n '2,/^[^#]/s/^# //p' "$0"
: "${SLURM_JOB_NUM_NODES:?start this with sbatch (--help has an example)}" "${1:?what to run (--help has an example)}"
export SLURM_EXPORT_ENV=ALL # srun passes on the variables, even if sbatch had --export=NONE
# Computed here, once: the second file would compute it on every node.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT="$((20000 + SLURM_JOB_ID % 10000))" NNODES="$SLURM_JOB_NUM_NODES"
export NPROC="${NPROC:-${SLURM_GPUS_ON_NODE:-1}}" SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
exec srun --kill-on-bad-exit=1 sh launch/slurm_node.sh "$@"
