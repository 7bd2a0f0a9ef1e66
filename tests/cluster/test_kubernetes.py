"""Check launch/kubernetes.yaml and kubeflow.yaml by schemas, and run their pods on nodes."""

import re

import pytest

from tests.cluster.jobs import Command, lay
from tests.processes import ROOT

kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="no kubernetes-validate: make test installs it"
)
train_job = pytest.importorskip(
    "kubeflow_trainer_api.models.trainer_v1alpha1_train_job",
    reason="no kubeflow-trainer-api: make test installs it",
)
import yaml  # noqa: E402  (kubernetes-validate brings it)

VERSION = "1.33"
KUBERNETES = (ROOT / "launch" / "kubernetes.yaml").read_text(encoding="utf-8")
KUBEFLOW = (ROOT / "launch" / "kubeflow.yaml").read_text(encoding="utf-8")


def validated(text):
    """The resources of a file. Raises an error if Kubernetes or Kubeflow would refuse them."""
    found = list(yaml.safe_load_all(text))
    for resource in found:
        if resource["apiVersion"].startswith("trainer.kubeflow.org/"):
            job = train_job.TrainerV1alpha1TrainJob.from_dict(resource)
            assert job.to_dict() == resource  # the models drop unknown fields
        else:
            kubernetes_validate.validate(resource, VERSION, strict=True)
    return found


def test_the_names_and_numbers_that_must_agree():
    service, job = validated(KUBERNETES)
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    settings = {one["name"]: one.get("value") for one in container["env"]}
    assert job["spec"]["completionMode"] == "Indexed"
    assert settings["NNODES"] == str(job["spec"]["completions"]) == str(job["spec"]["parallelism"])
    assert spec["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    # Pod 0 of an indexed Job is called JOB-0, and its host name is JOB-0.SUBDOMAIN.
    port = service["spec"]["ports"][0]["port"]
    pod = f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert settings["ENDPOINT"] == f"{pod}:{port}"
    assert {mount["name"] for mount in container["volumeMounts"]} <= {
        volume["name"] for volume in spec["volumes"]
    }


def of_kubernetes(number):
    """The container of pod `number`, and its environment."""
    job = validated(KUBERNETES)[1]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    return container, {**env, "JOB_COMPLETION_INDEX": str(number)}


def of_kubeflow(number):
    """The same, with the variables of Kubeflow Trainer 2.3 (in its plugins/torch/torch.go)."""
    (job,) = validated(KUBEFLOW)
    name, trainer = job["metadata"]["name"], job["spec"]["trainer"]
    return trainer, {
        "PET_NNODES": str(trainer["numNodes"]),
        "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
        "PET_NODE_RANK": str(number),
        "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
        "PET_MASTER_PORT": "29500",
    }


@pytest.mark.parametrize("pod", [of_kubernetes, of_kubeflow])
def test_pods_on_nodes_say_hello(pod, cluster):
    """Only the other pods know pod 0's name. It comes late, so pod 0 must not wait for it."""
    nodes, running = cluster(2), []
    for number, node in enumerate(nodes.nodes):
        folder = nodes.folder(node)
        lay(folder, "launch")
        container, env = pod(number)
        if number:
            line = f"{nodes.address('node1')} ddp-0.ddp ddp-node-0-0.ddp"
            nodes.output(node, ["sh", "-c", f"echo {line} >>/etc/hosts"])
        words = [word.replace("/work", str(folder)) for word in container["command"]]
        running.append(Command(nodes, node, [*words, *container["args"]], env))
    for command in running:
        assert command.wait() == 0, command.out
    said = "".join(command.out for command in running)
    assert re.findall(r"LOCAL_RANK=(.).*WORLD_SIZE=4  on node1", said) in (["0", "1"], ["1", "0"])
    assert re.findall(r"LOCAL_RANK=(.).*WORLD_SIZE=4  on node2", said) in (["0", "1"], ["1", "0"])
    assert "4 ranks over gloo, sum of the ranks: 6, expected 6" in said
