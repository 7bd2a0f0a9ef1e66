"""Predict how long backward() and the averaging of the gradients take.

    python docs/theory/step_time.py

`--help` lists the options: processes, bandwidth, latency, size of a bucket.

The model makes four assumptions. A message of n bytes takes
latency + n / bandwidth: the alpha-beta model, as in Thakur, Rabenseifner and
Gropp, "Optimization of Collective Communication Operations in MPICH" (2005).
An all-reduce is the ring of Patarasuk and Yuan, "Bandwidth optimal all-reduce
algorithms for clusters of workstations" (2009); its additions cost no time.
backward() computes as many bytes of gradients in each millisecond. The
all-reduces run one after the other, and do not slow backward() down.

Times are in seconds, sizes in bytes, bandwidths in bytes per second.
"""

import argparse
from dataclasses import dataclass


@dataclass
class Model:
    name: str
    size: int  # bytes of the gradients: 4 per weight
    backward: float


# gpt-micro: preset laptop, 768 tokens. 2/3 of a step on one thread of an AMD
#   EPYC (tools/bench/results/ladder.txt: 26,384 tokens/s). Backward computes
#   two matrix products where forward computes one, hence 2/3.
# ResNet-50: on a P100, by Goyal et al. 2017, arXiv 1706.02677, section 4.3.
# GPT-2: 16,384 tokens. 2/3 of the 90 ms of a step on an A100 in Karpathy's
#   lecture "Let's reproduce GPT-2 (124M)".
MODELS = (
    Model("gpt-micro", 4 * 812_800, 0.0194),
    Model("ResNet-50", 4 * 25_557_032, 0.120),
    Model("GPT-2 124M", 4 * 124_439_808, 0.060),
)


def all_reduce(size, world_size, latency, bandwidth):
    rounds = 2 * (world_size - 1)
    return rounds * latency + rounds / world_size * size / bandwidth


def buckets(size, bucket):
    """Return the sizes of the buckets: all are full, except the last one."""
    full, rest = divmod(size, bucket)
    return [bucket] * full + [rest] * (rest > 0)


def timeline(model, bucket, *network):
    """Return, per bucket, when it is full and when its all-reduce runs.

    `network` is what all_reduce takes: world_size, latency, bandwidth.
    """
    events, computed, end = [], 0, 0
    for size in buckets(model.size, bucket):
        computed += size
        full = model.backward * computed / model.size
        start = max(full, end)  # wait for the all-reduce of the bucket before
        end = start + all_reduce(size, *network)
        events.append((full, start, end))
    return events


def step(model, bucket, *network):
    """Return the time from the start of backward() to the last average.

    The first number is with overlap. The second is without: backward() ends,
    then the all-reduces run. Forward and optimizer add the same to both.
    """
    events = timeline(model, bucket, *network)
    sending = sum(end - start for _, start, end in events)
    return events[-1][-1], model.backward + sending


def main():
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--world_size", type=int, default=8)
    add("--gigabytes", type=float, default=1.25, help="per second")
    add("--microseconds", type=float, default=50, help="latency")
    add("--bucket", type=float, default=25, help="size in MiB")
    args = parser.parse_args()
    network = args.world_size, args.microseconds / 1e6, args.gigabytes * 1e9
    print(
        f"{args.world_size} processes, {args.gigabytes:g} GB/s, "
        f"{args.microseconds:g} µs, buckets of {args.bucket:g} MiB; "
        "milliseconds:")
    print("            gradients  backward  overlapped  not overlapped")
    for model in MODELS:
        times = step(model, int(args.bucket * 2**20), *network)
        overlapped, one_by_one = (seconds * 1e3 for seconds in times)
        print(
            f"{model.name:10}{model.size / 1e6:8.1f} MB"
            f"{model.backward * 1e3:10.1f}{overlapped:12.1f}{one_by_one:16.1f}")


if __name__ == "__main__":
    main()
