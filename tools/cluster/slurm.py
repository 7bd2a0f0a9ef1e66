"""Slurm on a cluster's nodes: slurmctld on node1, a slurmd on each node, one munged for all."""

import os

from .cluster import Cluster

PROGRAMS = {"slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "munged": "munge"}
CPUS = 4  # per node, whatever the machine has: enough for a lesson's ranks
GPUS = 2  # per node: empty files, which Slurm grants like GPUs
CONF = """\
ClusterName=box
SlurmctldHost=node1({controller})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=1
GresTypes=gpu
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
MailProg=/bin/true
KillWait=5
SlurmdTimeout=20
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=ALL Default=YES State=UP
PartitionName=urgent Nodes=ALL State=UP PriorityTier=2
"""


def start(cluster: Cluster) -> None:
    """Returns when every node is idle. Raises UserError if one is not within half a minute."""
    cluster.needs(PROGRAMS)
    place = cluster.place / "slurm"
    (place / "state").mkdir(parents=True)
    nodes = "\n".join(
        f"NodeName={name} NodeAddr={cluster.address(name)} CPUs={CPUS} RealMemory=65536 "
        f"Gres=gpu:{GPUS} State=UNKNOWN"
        for name in cluster.nodes
    )
    conf = place / "slurm.conf"
    conf.write_text(CONF.format(controller=cluster.address("node1"), place=place, nodes=nodes))
    for number in range(GPUS):
        (place / f"gpu{number}").touch()
    (place / "gres.conf").write_text(f"Name=gpu File={place}/gpu[0-{GPUS - 1}]\n")
    key = place / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(128))
    files = [f"--{what}-file={place}/munge.{what}" for what in ("key", "pid", "log", "seed")]
    munge = ["munged", "--foreground", "--force", f"--socket={place}/munge.socket", *files]
    cluster.environment["SLURM_CONF"] = str(conf)
    cluster.serve([("switch", munge)])
    cluster.until((place / "munge.socket").exists, "munge does not start")
    cluster.serve([("node1", ["slurmctld", "-D", "-i"])])
    cluster.serve([(name, ["slurmd", "-D", "-N", name]) for name in cluster.nodes])

    def idle():
        states = cluster.output("node1", ["sinfo", "-h", "-N", "-p", "all", "-o", "%t"]).split()
        return states == ["idle"] * len(cluster.nodes)

    cluster.until(idle, "not every node of Slurm is idle")
