#!/bin/sh
# Grid Engine: a torchrun on each host of a parallel environment. In the folder that has
# launch/ and the script, with an environment `ddp` that has control_slaves TRUE and, as
# allocation_rule, a number: Grid Engine gives that many slots per host, and this script
# starts that many processes there (qconf -sp ddp shows both).
#
#   qsub -cwd -V -pe ddp 4 launch/gridengine.sh multinode.py 50 10
#
# NPROC overrides that number, for hosts with fewer GPUs than slots. By default Grid Engine
# takes the shell from the next line, not from the first.
#$ -S /bin/sh
# To ask for more, remove one # of these lines. GPUs and memory are per slot, and the time is
# the job's. Your site defines the name `gpu`, if it has one (qconf -sc):
#
##$ -l gpu=1
##$ -l h_vmem=16G
##$ -l h_rt=8:00:00
#
# If you call qsub outside of your environment, remove the # of one of these lines. This shell
# does not read ~/.bashrc, so `conda activate` fails without conda's own file.
#
#. ~/.venv/bin/activate
#. ~/miniconda3/etc/profile.d/conda.sh && conda activate ddp
set -eu # after conda, whose scripts use unset variables
# Grid Engine starts a login shell, in which /etc/profile resets PATH. This loses what -V
# passed on.
PATH="${VIRTUAL_ENV:+$VIRTUAL_ENV/bin:}${CONDA_PREFIX:+$CONDA_PREFIX/bin:}$PATH"
[ "${1:-}" = --help ] && exec sed -n '2,/^[^#]/s/^# //p' "$0"
HOSTS=$(cut -d " " -f 1 "${PE_HOSTFILE:?start this with qsub -pe (--help has an example)}")
slots=$(head -n 1 "$PE_HOSTFILE" | cut -d " " -f 2)
export HOSTS NPROC="${NPROC:-$slots}"
export MASTER_PORT="${MASTER_PORT:-$((20000 + JOB_ID % 10000))}" JOB="$JOB_ID.${RESTARTED:-0}"
# Like ssh, but Grid Engine counts these processes as part of this job, and ends them with it.
export RSH="qrsh -inherit -nostdin -V"
exec sh launch/ssh.sh sh launch/torchrun_c10d.sh "$@"
