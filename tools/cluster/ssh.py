"""ssh between a cluster's nodes, with its own keys: `ssh -F $SSH_CONFIG node2 COMMAND`.

sshd needs an empty folder /run/sshd, which this leaves behind.
"""

import subprocess

from .cluster import Cluster

PROGRAMS = {"sshd": "openssh-server", "ssh": "openssh-client"}
SERVER = """\
HostKey {place}/host
AuthorizedKeysFile {place}/user.pub
StrictModes no
PidFile none
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
SetEnv TMPDIR={temporary}
"""
CLIENT = """\
Host *
    IdentityFile {place}/user
    IdentitiesOnly yes
    UserKnownHostsFile {place}/known
    BatchMode yes
    LogLevel ERROR
"""


def start(cluster: Cluster) -> None:
    """Returns when every node answers. Raises UserError if one does not."""
    cluster.needs(PROGRAMS)
    place = cluster.place / "ssh"
    place.mkdir()
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)]
        subprocess.run(words, check=True)
    key = (place / "host.pub").read_text()
    (place / "known").write_text("".join(f"{name} {key}" for name in cluster.nodes))
    for name in cluster.nodes:
        server = SERVER.format(place=place, temporary=cluster.temporary(name))
        (place / name).write_text(server)
    (place / "client").write_text(CLIENT.format(place=place))
    serve = f"mkdir -p /run/sshd; exec /usr/sbin/sshd -D -e -f {place}/"
    cluster.environment["SSH_CONFIG"] = str(place / "client")
    cluster.serve([(name, ["sh", "-c", serve + name]) for name in cluster.nodes])
    for name in cluster.nodes:
        there = ["ssh", "-F", str(place / "client"), name, "hostname"]
        cluster.until(lambda there=there, name=name: cluster.output("node1", there).strip() == name,
                      f"no ssh to {name}")  # fmt: skip
