"""Scripts for GPUs run unchanged on CPUs, and train as the same scripts written for CPUs do."""

import json
import sys

import torch

from diagnosing import diagnose, run

TRAIN = """
import json, os, pathlib, sys
import torch, torch.distributed as dist, torch.multiprocessing as mp, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(rank):
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    torch.manual_seed(1)
    torch.cuda.manual_seed_all(1)
    torch.backends.cudnn.benchmark = True
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = DDP(model.to(rank), [rank], rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    scaler = torch.cuda.amp.GradScaler()
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 8, sampler=sampler, pin_memory=True)
    total = torch.zeros(1, device=f"cuda:{rank}")
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            inputs, targets = inputs.cuda(rank, non_blocking=True), targets.to(device)
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                outputs = model(inputs + torch.zeros(8, device="cuda"))
                loss = nn.functional.mse_loss(outputs, targets)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            total += loss.detach()
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    dist.barrier(device_ids=[rank])
    torch.cuda.synchronize()
    state = {"model": model.module.state_dict(), "total": total, "rng": torch.get_rng_state()}
    torch.save(state, f"{sys.argv[1]}{rank}.pt")
    torch.load(f"{sys.argv[1]}{rank}.pt", map_location={"cuda:0": f"cuda:{rank}"})


def write_facts():
    lines = "".join(p.read_text() for p in pathlib.Path(os.environ["DOCTOR_FACTS"]).glob("*.jsonl"))
    facts = [json.loads(line) for line in lines.splitlines()]
    texts = sorted({fact["what"] for fact in facts if fact["kind"] == "mapped"})
    pathlib.Path(f"{sys.argv[1]}.json").write_text(json.dumps(texts))


def begin(rank, store):
    options = {"store": dist.FileStore(store, 2), "rank": rank, "world_size": 2}
    dist.init_process_group("nccl", **options, device_id=torch.device(rank))
    train(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    assert torch.cuda.is_available()
    mp.spawn(begin, (os.path.abspath(sys.argv[1] + "store"),), nprocs=torch.cuda.device_count())
    write_facts()
"""
FOR_CPUS = {
    '    torch.cuda.set_device(rank)\n': "",
    'torch.device("cuda", rank)': 'torch.device("cpu")',
    "    torch.cuda.manual_seed_all(1)\n": "",
    "    torch.backends.cudnn.benchmark = True\n": "",
    "    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)\n": "",
    "DDP(model.to(rank), [rank], rank)": "DDP(model)",
    "torch.cuda.amp.GradScaler()": 'torch.amp.GradScaler("cpu")',
    ", pin_memory=True": "",
    ', device=f"cuda:{rank}"': "",
    ', device="cuda"': "",
    "inputs.cuda(rank, non_blocking=True), targets.to(device)": "inputs, targets",
    'torch.autocast("cuda", dtype=torch.float16)': 'torch.autocast("cpu", dtype=torch.bfloat16)',
    "dist.all_reduce(total, op=dist.ReduceOp.AVG)": "dist.all_reduce(total.div_(2))",
    "device_ids=[rank]": "",
    "    torch.cuda.synchronize()\n": "",
    ', map_location={"cuda:0": f"cuda:{rank}"}': "",
    '"nccl"': '"gloo"',
    ", device_id=torch.device(rank)": "",
    "    assert torch.cuda.is_available()\n": "",
    "torch.cuda.device_count()": "2",
    "    write_facts()\n": "",
}  # fmt: skip
MAPPED = [
    "AVG → SUM / world size",
    "DataParallel → one replica",
    "SyncBatchNorm → BatchNorm",
    "autocast float16 → bfloat16",
    "backend nccl → gloo",
    "capturable ignored",
    "device cuda → cpu",
    "device_ids ignored",
    "get_future waits",
    "pin_memory ignored",
]
# What else public scripts call, by torchrun. A copy of the model, sharded, checks itself.
MORE = """
import contextlib, copy, io, os, threading
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader
import train

cuda, acc = torch.cuda, torch.accelerator
rank = int(os.environ["LOCAL_RANK"])


def devices():
    assert cuda.device_count() == acc.device_count() == 2
    acc.set_device_index(rank)
    assert cuda.current_device() == acc.current_device_index() == rank
    with cuda.device(0):
        assert cuda.current_device() == 0
    assert torch.device(acc.current_accelerator().type, rank) == torch.device(rank)
    cuda.get_device_name(), cuda.get_device_properties(rank).total_memory
    assert cuda.get_device_capability() >= (7, 0) and cuda.is_bf16_supported()
    assert torch.version.cuda >= "12"
    with torch.autocast("cuda", torch.float16):
        square = torch.ones(2, 2, device="cuda")
        assert (square @ square).cpu().numpy().dtype == "float16"
    part, columns = torch.zeros(4, 4)[:, :2], torch.zeros(4, 4).T
    assert part.cuda().is_contiguous() and part.to("cuda").is_contiguous()
    assert columns.cuda() is columns and part.to(torch.float32) is part
    cuda.memory_allocated() + cuda.max_memory_reserved()
    getattr(acc, "max_memory_allocated", int)()  # of torch 2.9
    cuda.reset_peak_memory_stats(), cuda.memory_stats()["any"], cuda.mem_get_info()
    cuda.empty_cache(), cuda.ipc_collect(), cuda.memory_summary(), torch.get_device_module("cuda")
    states = cuda.get_rng_state_all()
    cuda.set_rng_state_all(states), cuda.set_rng_state(cuda.get_rng_state(), rank)
    begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    with cuda.stream(cuda.Stream()), cuda.nvtx.range("x"), cuda.profiler.profile():
        begin.record(), end.record(cuda.current_stream())
    cuda.current_stream().wait_stream(cuda.Stream()), acc.current_stream().synchronize()
    assert begin.elapsed_time(end) >= 0


def tensors():
    ones = torch.ones(2, device=rank, pin_memory=True).pin_memory()
    assert not ones.cuda().is_cuda and ones.to("cuda", torch.float64).dtype == torch.float64
    ones.new_zeros(2, device="cuda"), torch.zeros_like(ones, device=torch.device("cuda", 1))
    generator = torch.Generator(device="cuda").manual_seed(1)
    torch.randn(2, generator=generator, device="cuda").record_stream(cuda.current_stream())
    torch.set_default_device("cuda")
    torch.ones(2) + ones
    torch.set_default_device(None)
    with torch.device("cuda"):
        nn.Linear(2, 2)(ones)
    thread = threading.Thread(target=lambda: found.append(torch.ones(2, device="cuda")))
    found = []
    thread.start(), thread.join(60)
    assert len(found) == 1
    for batch in DataLoader(range(8), 4, pin_memory=True, num_workers=1):
        batch.cuda(non_blocking=True)
    file = io.BytesIO()
    torch.save(ones, file)
    for place in ("cuda:0", lambda storage, _: storage.cuda(1), None):
        file.seek(0), torch.load(file, place)


def networks():
    inner = nn.Linear(4, 4, device="cuda")
    ones = torch.ones(2, 4, device="cuda", requires_grad=True)
    torch.manual_seed(rank)
    for reentrant in (True, False):
        where = torch.device("cuda")
        block = lambda x: F.dropout(inner(x)) + torch.zeros(4, device=where)
        checkpoint(block, ones, use_reentrant=reentrant).sum().backward()
    with torch.random.fork_rng(devices=[rank]):
        cuda.manual_seed(1)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        F.scaled_dot_product_attention(*[torch.ones(1, 1, 4, 8, device="cuda")] * 3)
    nn.DataParallel(inner.cuda())(ones).sum().backward()
    torch.optim.Adam(inner.parameters(), capturable=True, foreach=True).step()
    compiled = torch.compile(lambda x: x.cuda() + torch.ones(4, device=where), backend="eager")
    assert torch.equal(compiled(ones), ones + 1)


def groups():
    assert dist.is_nccl_available()
    dist.barrier(dist.new_group(backend="nccl"))
    mesh = init_device_mesh("cuda", (2,))
    ones = torch.ones(4, 4, device="cuda")
    plain = nn.Linear(4, 4)
    for parameter in plain.parameters():
        dist.broadcast(parameter.detach(), 0)
    sharded = copy.deepcopy(plain).to(rank)
    fully_shard(sharded, mesh=mesh)
    sharded(ones * rank).sum().backward(), plain(ones / 2).sum().backward()
    assert torch.allclose(sharded.weight.grad.full_tensor(), plain.weight.grad)
    for place in (torch.device(rank), rank):
        replica = nn.parallel.DistributedDataParallel(plain, [place])
        replica(ones).sum().backward()
        assert replica.device_ids[0] == place
    shards = FSDP(copy.deepcopy(plain).to(rank), device_id=rank)
    whole = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(shards, StateDictType.FULL_STATE_DICT, whole):
        state = shards.state_dict()
    assert rank or torch.equal(state["weight"], plain.weight)
    part = torch.empty(1, device="cuda")
    work = dist.reduce_scatter_tensor(part, torch.ones(2) * rank, dist.ReduceOp.AVG, async_op=True)
    work.get_future().wait()
    assert part.item() == 0.5


devices(), tensors(), networks()
dist.init_process_group(backend="cpu:gloo,cuda:nccl", device_id=torch.device("cuda", rank))
groups()
train.train(rank)
dist.barrier()
if rank == 0:
    train.write_facts()
dist.destroy_process_group()
"""


def test_the_weights_are_those_of_the_script_for_cpus(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "more.py").write_text(MORE)
    text = TRAIN
    for old, new in FOR_CPUS.items():
        assert old in text, old
        text = text.replace(old, new)
    assert "cuda" not in text
    (tmp_path / "cpu.py").write_text(text)
    ran = run([sys.executable, "cpu.py", "cpu"], tmp_path)
    assert ran.status == 0, ran.tail
    words = ("torchrun", "--standalone", "--nproc-per-node=gpu", "more.py", "torchrun")
    seen = diagnose(tmp_path, *words, options=("--cpu", "2"))
    assert seen.ran.status == 0, seen.ran.tail
    assert not any("on_cpu" in text for text in seen.report["not examined"])
    for rank in (0, 1):
        ours, theirs = (torch.load(tmp_path / f"{run}{rank}.pt") for run in ("torchrun", "cpu"))
        assert ours["total"] == theirs["total"]
        assert torch.equal(ours["rng"], theirs["rng"])
        for name, value in theirs["model"].items():
            assert torch.equal(ours["model"][name], value), name
    assert json.loads((tmp_path / "torchrun.json").read_text()) == MAPPED
