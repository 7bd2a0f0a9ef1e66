"""multinode.py ported to Accelerate, Fabric and DeepSpeed trains the same: docs/port/with_*.py."""

import importlib.util

import pytest
import torch

from tests.processes import LIMIT, ROOT, losses
from tools.processes import Process, environment


def needs(package):
    return pytest.mark.skipif(
        not importlib.util.find_spec(package),
        reason=f"no {package} here: python3 tools/bootstrap.py ports",
    )


def port(folder, system, *args, edits=()):
    """A finished run of the port in `folder`, after some edits of its text."""
    text = (ROOT / "docs" / "port" / f"with_{system}.py").read_text()
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    (folder / "port.py").write_text(text)
    words = ["torchrun", "--standalone", "--nproc_per_node=2", "port.py", *args]
    path = f"{ROOT}/tools/quick:{ROOT}"
    env = environment(PYTHONPATH=path, PYTHONWARNINGS="ignore", OMP_NUM_THREADS="1")
    with Process(words, folder, env) as process:
        process.status = process.wait(LIMIT)
    return process


def distance(folder, trained):
    """How far its weights are from those of the documented run of multinode.py, at epoch 10."""
    ours = torch.load(trained("multinode").saves[0])["model"]
    theirs = torch.load(folder / "port.pt")["model"]
    assert ours.keys() == theirs.keys()
    return max((ours[name] - theirs[name]).abs().max().item() for name in ours)


@pytest.mark.parametrize(
    "system",
    [
        pytest.param("accelerate", marks=needs("accelerate")),
        pytest.param("fabric", marks=needs("lightning_fabric")),
    ],
)
def test_accelerate_and_fabric_give_the_same_weights_to_the_last_bit(system, tmp_path, trained):
    ran = port(tmp_path, system, 10, 10)
    assert ran.status == 0, ran.tail
    assert distance(tmp_path, trained) == 0


@needs("deepspeed")
@pytest.mark.parametrize("stage", [1, 3])
def test_deepspeed_gives_the_same_weights(stage, tmp_path, trained):
    ran = port(tmp_path, "deepspeed", 10, 10, "--stage", stage)
    assert ran.status == 0, ran.tail
    assert distance(tmp_path, trained) <= 3e-8


@needs("deepspeed")
def test_deepspeed_clips_gradients_if_the_configuration_does_not_say_so(tmp_path, trained):
    line = '        "gradient_clipping": 0.0,  # the default is 1.0\n'
    ran = port(tmp_path, "deepspeed", 1, 1, edits=[(line, "")])
    assert ran.status == 0, ran.tail
    assert losses(ran.lines)[0][0] > losses(trained("multinode").lines)[0][0] + 0.05


@needs("accelerate")
def test_accelerate_shards_a_distributed_sampler_twice(tmp_path):
    keep = "self.train_data = train_data  # not prepared: it has a sampler already"
    edits = [
        (keep, "self.train_data = accelerator.prepare(train_data)"),
        ("self.train_data.sampler.set_epoch(epoch)", "self.train_data.set_epoch(epoch)"),
    ]
    ran = port(tmp_path, "accelerate", 1, 1, edits=edits)
    assert ran.status == 0, ran.tail
    assert [samples for _, samples in losses(ran.lines)] == [1024]


@needs("accelerate")
def test_without_a_gpu_accelerate_leaves_each_rank_alone_unless_told(tmp_path):
    edits = [('Accelerator(cpu=utils.device().type == "cpu")', "Accelerator()")]
    ran = port(tmp_path, "accelerate", 1, 1, edits=edits)
    assert ran.status != 0
    assert "'Linear' object has no attribute 'module'" in ran.out  # no DDP around it
    assert len(losses(ran.lines)) == 1  # and it has trained
