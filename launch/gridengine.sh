#!/bin/sh
# Grid Engine: a torchrun on each host of a parallel environment. In the folder that has
# launch/ and the script, with an environment `ddp` that has control_slaves TRUE and, as
# allocation_rule, a number: so many slots it gives on each host, and so many processes
# start there (qconf -sp ddp shows both).
#
#   qsub -cwd -V -pe ddp 4 launch/gridengine.sh multinode.py 50 10
#
# NPROC overrides that number, for hosts with fewer GPUs than slots. Grid Engine reads the
# next line, and not, by default, the first.
#$ -S /bin/sh
set -eu
# It starts a login shell, for which /etc/profile sets PATH anew: what -V has brought along
# is lost.
PATH="${VIRTUAL_ENV:+$VIRTUAL_ENV/bin:}${CONDA_PREFIX:+$CONDA_PREFIX/bin:}$PATH"
HOSTS=$(cut -d " " -f 1 "${PE_HOSTFILE:?started by qsub -pe}")
slots=$(head -n 1 "$PE_HOSTFILE" | cut -d " " -f 2)
export HOSTS NPROC="${NPROC:-$slots}"
export MASTER_PORT="${MASTER_PORT:-$((20000 + JOB_ID % 10000))}" JOB="$JOB_ID.${RESTARTED:-0}"
# As ssh, but each is a part of this job, counted and ended with it.
export RSH="qrsh -inherit -nostdin -V"
exec sh launch/ssh.sh sh launch/torchrun_c10d.sh "$@"
