"""Grid Engine on a cluster's nodes: the master on node1, with a parallel environment `ddp`."""

import subprocess

from tools.errors import UserError

from .cluster import Cluster

PROGRAMS = {"sge_qmaster": "gridengine-master", "sge_execd": "gridengine-exec",
            "qconf": "gridengine-client"}  # fmt: skip
PLACES = ("/var/lib/gridengine", "/var/spool/gridengine")  # where Debian's packages put it
SLOTS = 2  # per job and node
GPUS = 2  # per node: only a number, which Grid Engine counts down
PARALLEL = f"""\
pe_name ddp
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule {SLOTS}
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""
QUEUE = {
    "qname": "all.q", "hostlist": "@allhosts", "load_thresholds": "NONE", "pe_list": "ddp",
    "rerun": "TRUE", "slots": "8", "shell": "/bin/csh",  # the default at some sites
}  # fmt: skip


def start(cluster: Cluster) -> None:
    """Returns when every node takes jobs. Raises UserError if one does not."""
    cluster.needs(PROGRAMS)
    place = cluster.place / "gridengine"
    place.mkdir()
    mounts = ""
    for number, where in enumerate(PLACES):  # every node sees copies instead of the system's files
        subprocess.run(["cp", "-a", where, place / str(number)], check=True)
        mounts += f"mountpoint -q {where} || mount --bind {place}/{number} {where}; "
    (place / "0" / "default" / "common" / "act_qmaster").write_text("node1\n")
    cluster.environment |= {"SGE_ROOT": PLACES[0], "SGE_CELL": "default"}

    def conf(words, name="", text=""):
        if text:
            (place / name).write_text(text)
            words = f"{words} {place / name}"
        return cluster.output("node1", ["qconf", *words.split()])

    for name in cluster.nodes:
        cluster.output(name, ["sh", "-c", mounts])
    cluster.serve([("node1", ["sge_qmaster"])])
    cluster.until(lambda: "execd_spool" in conf("-sconf"), "the master of Grid Engine is silent")
    for name in cluster.nodes:
        conf(f"-ah {name}")
        conf(f"-as {name}")
    whole = conf("-sconf").partition("\n")[2]  # its first line says whose it is
    conf("-Mconf", "global", _changed(whole, min_uid="0", min_gid="0"))  # allow root's jobs
    conf("-Msconf", "scheduler", _changed(
        conf("-ssconf"), schedule_interval="0:0:1", flush_submit_sec="1", flush_finish_sec="1"))
    conf("-Mc", "resources", conf("-sc") + "gpu gpu INT <= YES YES 0 0\n")
    conf("-Ahgrp", "hosts", f"group_name @allhosts\nhostlist {' '.join(cluster.nodes)}\n")
    conf("-Ap", "parallel", PARALLEL)
    said = conf("-Aq", "queue", _changed(conf("-sq"), **QUEUE))
    if "added" not in said:
        raise UserError(f"Grid Engine refuses the queue: {said.strip()}")
    # With the mounts, because a replaced node has none.
    execd = ["sh", "-c", f"{mounts}exec sge_execd"]
    cluster.serve([(name, execd) for name in cluster.nodes])

    def ready():
        lines = cluster.output("node1", ["qstat", "-f"]).splitlines()
        queues = [line.split() for line in lines if line.startswith("all.q@")]
        # A sixth column says what is wrong with a queue, such as "au": its node does not answer.
        return [len(queue) for queue in queues] == [5] * len(cluster.nodes)

    cluster.until(ready, "not every queue of Grid Engine is ready", 60)
    for name in cluster.nodes:  # known only now
        conf(f"-rattr exechost complex_values gpu={GPUS} {name}")


def _changed(text, **fields):
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    return "".join(f"{name} {fields.get(name, rest)}\n" for name, rest in lines)
