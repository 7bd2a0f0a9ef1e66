#!/bin/bash
# Slurm, one torchrun on each node. In the folder that has launch/ and the script:
#
#   sbatch --nodes=2 launch/slurm.sh multinode.py 50 10
#
# NPROC processes on a node, or as many as it gives GPUs. Options on the command line go
# before these:
#
#SBATCH --job-name=ddp
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --requeue
#SBATCH --open-mode=append
# Two minutes before the time limit, or three, this script, and it alone, is told. (So with
# a limit of three minutes it would be told at once, each time.)
#SBATCH --signal=B:USR1@120
set -u
export SLURM_EXPORT_ENV=ALL # srun passes on what stands here, even where sbatch was told not to
export NPROC="${NPROC:-${SLURM_GPUS_ON_NODE:-1}}" NNODES="$SLURM_JOB_NUM_NODES"
export ENDPOINT="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):$((20000 + SLURM_JOB_ID % 10000))"
export JOB="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"
# srun does not take --cpus-per-task over, and would give each task one CPU.
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
threads=$((SRUN_CPUS_PER_TASK / NPROC))
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}"
# Back into the queue: all get SIGTERM, time to save, and another turn from the newest
# checkpoint.
trap 'echo "time is nearly up: job $SLURM_JOB_ID goes back into the queue"; scontrol requeue "$SLURM_JOB_ID"' USR1
srun --kill-on-bad-exit=1 sh launch/torchrun_c10d.sh "$@" &
wait $! # bash hears a signal at once only here, not while a command runs in front
status=$?
[ $status -le 128 ] || { wait $!; status=$?; }
exit $status
