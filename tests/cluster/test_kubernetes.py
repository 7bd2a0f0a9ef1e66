"""launch/kubernetes.yaml, against the schemas of Kubernetes, offline; and what they cannot see."""

import pytest

from tests.processes import ROOT

kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="no kubernetes-validate: make test installs it"
)
import yaml  # noqa: E402  (kubernetes-validate brings it)

VERSION = "1.33"
TEXT = (ROOT / "launch" / "kubernetes.yaml").read_text(encoding="utf-8")


def validated(text):
    found = list(yaml.safe_load_all(text))
    for resource in found:
        kubernetes_validate.validate(resource, VERSION, strict=True)
    return found


def test_the_schemas_know_every_field():
    service, job = validated(TEXT)
    assert (service["kind"], job["kind"]) == ("Service", "Job")


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("completionMode: Indexed", "completionsMode: Indexed"),
        ("parallelism: 2", "parallelism: two"),
        ("mountPath: /work", "mountpath: /work"),
        ("clusterIP: None", "clusterIP: [None]"),
    ],
)
def test_a_mistake_is_found(right, wrong):
    assert right in TEXT
    with pytest.raises(kubernetes_validate.ValidationError):
        validated(TEXT.replace(right, wrong, 1))


def test_the_names_and_numbers_that_must_agree():
    service, job = validated(TEXT)
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    settings = {one["name"]: one.get("value") for one in container["env"]}
    assert job["spec"]["completionMode"] == "Indexed"
    assert settings["NNODES"] == str(job["spec"]["completions"]) == str(job["spec"]["parallelism"])
    assert spec["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    # Pod 0 of an indexed Job is called JOB-0, and has the name JOB-0.SUBDOMAIN.
    port = service["spec"]["ports"][0]["port"]
    pod = f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert settings["ENDPOINT"] == f"{pod}:{port}"
    assert f"ENDPOINT=localhost:{port};" in container["command"][2]  # of pod 0
    assert {mount["name"] for mount in container["volumeMounts"]} <= {
        volume["name"] for volume in spec["volumes"]
    }
