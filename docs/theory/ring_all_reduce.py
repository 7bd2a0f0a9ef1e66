"""Sum a vector over all processes by passing its chunks around a ring.

    python docs/theory/ring_all_reduce.py

Runs four CPU processes over gloo, with or without GPUs. NPROC=3 starts three.
"""

import datetime
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD_SIZE = int(os.environ.get("NPROC", 4))
# These give equal chunks, unequal chunks, and chunks of one element or none.
SIZES = (WORLD_SIZE * 100_000, WORLD_SIZE * 100_000 + 1, WORLD_SIZE - 1)


def ring_all_reduce(vector, show=lambda title: None):
    """Sum `vector` over all processes, in place. Return the bytes sent."""
    rank, sent = dist.get_rank(), 0
    left, right = (rank - 1) % WORLD_SIZE, (rank + 1) % WORLD_SIZE
    chunks = vector.tensor_split(WORLD_SIZE)  # views of the vector
    show("at first")
    for step in range(2 * (WORLD_SIZE - 1)):
        outgoing = chunks[(rank - step) % WORLD_SIZE]
        changing = chunks[(rank - step - 1) % WORLD_SIZE]
        incoming = torch.empty_like(changing)
        # isend does not block, so every rank reaches its irecv.
        sending = dist.isend(outgoing, right)
        dist.irecv(incoming, left).wait()
        sending.wait()
        sent += outgoing.nbytes
        if step < WORLD_SIZE - 1:  # reduce-scatter: add what the left rank sent
            changing += incoming
            show(f"add {step + 1}")
        else:  # all-gather: copy the complete sums
            changing.copy_(incoming)
            show(f"copy {step + 2 - WORLD_SIZE}")
    return sent


def show_table(title, vector):
    """Print the vectors of all ranks on one line."""
    rows = [torch.empty_like(vector) for _ in range(WORLD_SIZE)]
    dist.all_gather(rows, vector)
    if dist.get_rank() == 0:
        cells = [" ".join(f"{n:2}" for n in row.tolist()) for row in rows]
        print(f"{title:8} | " + " | ".join(cells))


def main(rank, small, sent, equal):
    # A power of two per rank, so a sum shows which ranks are in it.
    vector = torch.full([WORLD_SIZE], 2**rank)
    ring_all_reduce(vector, lambda title: show_table(title, vector))
    small[rank] = vector
    torch.manual_seed(rank)
    for case, size in enumerate(SIZES):
        # Whole numbers give the same bits in any order of addition.
        vector = torch.randint(-999, 1000, [size]).float()
        expected = vector.clone()
        dist.all_reduce(expected)
        sent[case, rank] = ring_all_reduce(vector)
        agree = torch.tensor(int(torch.equal(vector, expected)))
        dist.all_reduce(agree)
        equal[case] = agree  # the number of ranks with the right sum
        if agree < WORLD_SIZE:
            return  # the same bug could crash with unequal chunks


def worker(rank, port, results):
    store = dist.TCPStore("localhost", port)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=WORLD_SIZE,
        timeout=datetime.timedelta(seconds=60))  # if a bug makes it hang
    try:
        main(rank, *results)
        dist.barrier()  # wait until every rank is done
    finally:
        dist.destroy_process_group()


def check(holds, finding):
    if not holds:
        sys.exit(f"FAILED: {finding}")
    print(finding)


if __name__ == "__main__":
    # Shared by all processes: sums, bytes sent, number of ranks that agree.
    shapes = (WORLD_SIZE, WORLD_SIZE), (len(SIZES), WORLD_SIZE), [len(SIZES)]
    results = [torch.zeros(s).long().share_memory_() for s in shapes]
    store = dist.TCPStore("localhost", 0, is_master=True)  # 0: any free port
    mp.spawn(worker, args=(store.port, results), nprocs=WORLD_SIZE)

    small, sent, equal = results
    whole = 2**WORLD_SIZE - 1
    check(small.eq(whole).all(), f"Every rank holds {whole} everywhere")
    for case, size in enumerate(SIZES):
        check(
            equal[case] == WORLD_SIZE,
            f"{size:,} floats: {equal[case]} ranks agree with dist.all_reduce")
        whole, others = 4 * size, WORLD_SIZE - 1  # bytes, ranks
        check(
            sent[case].sum() == 2 * others * whole,
            f"  each sent {sent[case].min():,} to {sent[case].max():,} bytes: "
            f"2 * {others}/{WORLD_SIZE} of {whole:,} (all to all: "
            f"{others * whole:,})")
