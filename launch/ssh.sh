#!/bin/sh
# Runs the same command on several hosts, over ssh, in this folder on each. $NODE_RANK is the
# host's number:
#
#   HOSTS="node1 node2" sh launch/ssh.sh sh launch/torchrun_c10d.sh multinode.py 50 10
#
# NNODES, ENDPOINT and MASTER_ADDR follow from HOSTS; PATH, NPROC, JOB, MAX_RESTARTS,
# JOIN_TIMEOUT and variables that begin with GLOO_, NCCL_ or TORCH_ are passed on. RSH names
# a program to use instead of ssh. It waits for all hosts, and exits with the status of the
# first in HOSTS that failed. If a signal ends it, it ends them all.
set -eu
[ "${1:-}" = --help ] && exec sed -n '2,/^[^#]/s/^# //p' "$0"
: "${HOSTS:?which hosts, as HOSTS='node1 node2'}" "${1:?what to run (--help has an example)}"
first=$(set -- $HOSTS; echo "${1:?no host in HOSTS}") # split at spaces and newlines
quote() { printf "'%s' " "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; }
quoted=$(for word in "$@"; do quote "$word"; done)
passed=$(env | sed -En "/^(GLOO|NCCL|TORCH)_[A-Z0-9_]*=/{s/'/'\\\\''/g; s/=(.*)/='\1'/p;}" |
    tr '\n' ' ')
number=0 pids=
trap 'kill $pids 2>/dev/null || :' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
for host in $HOSTS; do
    # -tt: without a terminal, the remote command would not notice a lost connection, and
    # would run on.
    ${RSH:-ssh -tt} "$host" "cd $(quote "$PWD")&& PATH=$(quote "$PATH")$passed \
        NNODES=$(set -- $HOSTS; echo $#) NODE_RANK=$number \
        ENDPOINT=$(quote "$first:${MASTER_PORT:-29500}")MASTER_ADDR=$(quote "$first") \
        MASTER_PORT=$(quote "${MASTER_PORT:-29500}") \
        NPROC=$(quote "${NPROC:-1}")JOB=$(quote "${JOB:-job}") \
        MAX_RESTARTS=$(quote "${MAX_RESTARTS:-3}")JOIN_TIMEOUT=$(quote "${JOIN_TIMEOUT:-600}") \
        exec $quoted" </dev/null &
    pids="$pids $!" number=$((number + 1))
done
status=0
for pid in $pids; do
    wait "$pid" || { last=$?; [ $status != 0 ] || status=$last; }
done
exit $status
