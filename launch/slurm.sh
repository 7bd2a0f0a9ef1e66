#!/bin/bash
# Slurm, one torchrun on each node. In the folder that has launch/ and the script:
#
#   sbatch --nodes=2 launch/slurm.sh multinode.py 50 10
#
# Starts NPROC processes per node; by default, one per GPU that Slurm gives the node.
# Options on the command line override these:
#
#SBATCH --job-name=ddp
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --requeue
#SBATCH --open-mode=append
# Slurm signals this script alone, two to three minutes before the time limit. (With a limit
# of three minutes that would be at once, each time.)
#SBATCH --signal=B:USR1@120
# To ask for more, remove one # of these lines. GPUs and memory are per node:
#
##SBATCH --gpus-per-node=2
##SBATCH --mem=64G
##SBATCH --time=8:00:00
#
# If you call sbatch outside of your environment, remove the # of one of these lines. A batch
# shell does not read ~/.bashrc, so `conda activate` fails without conda's own file.
#
#. ~/.venv/bin/activate
#. ~/miniconda3/etc/profile.d/conda.sh && conda activate ddp
set -u # after conda, whose scripts use unset variables
[ "${1:-}" = --help ] && exec sed -n '2,/^[^#]/s/^# //p' "$0"
: "${SLURM_JOB_NUM_NODES:?start this with sbatch (--help has an example)}" "${1:?what to run (--help has an example)}"
case ${NPROC:-1} in 0* | *[!0-9]*)
    echo "slurm.sh: NPROC is '$NPROC', but must be a number from 1" >&2
    exit 2
    ;;
esac
export SLURM_EXPORT_ENV=ALL # srun passes on the variables, even if sbatch had --export=NONE
export NPROC="${NPROC:-${SLURM_GPUS_ON_NODE:-1}}" NNODES="$SLURM_JOB_NUM_NODES"
export ENDPOINT="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):$((20000 + SLURM_JOB_ID % 10000))"
export JOB="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"
# Since 22.05, srun does not inherit --cpus-per-task, and would give each task one CPU.
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
threads=$((SRUN_CPUS_PER_TASK / NPROC))
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}"
# On requeue, Slurm sends every process SIGTERM, so it can save. Later the job resumes from
# the newest checkpoint.
trap 'echo "time is nearly up: job $SLURM_JOB_ID goes back into the queue"; scontrol requeue "$SLURM_JOB_ID"' USR1
srun --kill-on-bad-exit=1 sh launch/torchrun_c10d.sh "$@" &
wait $! # in `wait`, bash handles a signal at once; during a foreground command, only afterwards
status=$?
[ $status -le 128 ] || { wait $!; status=$?; }
exit $status
