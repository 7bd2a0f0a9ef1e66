#!/bin/sh
# Grid Engine: a torchrun on each host of a parallel environment. In the folder that has launch/ and
# the script, with an environment `ddp` that has control_slaves TRUE (qconf -sp ddp):
#
#   qsub -cwd -V -pe ddp 4 launch/gridengine.sh multinode.py 50 10
#
# The slots of a host are its processes. NPROC overrides that, for hosts with fewer GPUs than slots.
set -eu
NNODES=$(wc -l <"${PE_HOSTFILE:?started by qsub -pe}")
first=$(head -n 1 "$PE_HOSTFILE" | cut -d " " -f 1)
export NNODES ENDPOINT="$first:$((20000 + JOB_ID % 10000))" JOB="$JOB_ID.${RESTARTED:-0}"
quoted=$(for word in "$@"; do printf "'%s' " "$(printf %s "$word" | sed "s/'/'\\\\''/g")"; done)
pids=
trap 'kill $pids 2>/dev/null || :' EXIT
trap 'exit 143' TERM
while read -r host slots _; do
    # -inherit: a part of this job, counted and ended with it. No host needs ssh. A shell there reads it.
    qrsh -inherit -nostdin -V "$host" \
        "cd '$PWD' && NPROC=${NPROC:-$slots} exec sh launch/torchrun_c10d.sh $quoted" &
    pids="$pids $!"
done <"$PE_HOSTFILE"
status=0
for pid in $pids; do
    wait "$pid" || { last=$?; [ $status != 0 ] || status=$last; }
done
exit $status
