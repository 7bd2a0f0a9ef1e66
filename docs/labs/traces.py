"""Read the traces of all ranks, and say who waited for whom.

    python docs/labs/traces.py rank0.trace.json rank1.trace.json

An all-reduce can only end when the last rank has begun it. Until then, the
other ranks wait. The first lines show five steps from the middle, in
milliseconds. Then one line per rank sums up its all-reduces of the epoch. All
ranks must have run on one machine, because the times are those of its clock.
"""

import json
import sys

SHOWN = range(10, 15)  # steps; the first ones are irregular


def spans(events, name):
    """(start, end, shape) in milliseconds, in order."""
    found = [event for event in events if event.get("name") == name]
    return sorted(
        (event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3, shape(event)) for event in found
    )


def shape(event):
    return str(event["args"].get("Input Dims", "unknown"))


ranks = []
for file in sys.argv[1:]:
    with open(file) as text:
        trace = json.load(text)
    assert trace["distributedInfo"]["rank"] == len(ranks), "pass ranks in order"
    events = trace["traceEvents"]
    sums = spans(events, "gloo:all_reduce")
    ranks.append((spans(events, "DistributedDataParallel.forward"), sums))

zero = min(forwards[SHOWN[0]][0] for forwards, _ in ranks)
for step in SHOWN:
    for rank, (forwards, sums) in enumerate(ranks):
        begin, (start, end, _) = forwards[step][0], sums[step]
        times = [f"{time - zero:6.2f}" for time in (begin, start, end)]
        line = "step {} | rank {} | forward {} | all-reduce {} to {}"
        print(line.format(step + 1, rank, *times))

every = zip(*(sums for _, sums in ranks), strict=True)  # step by step
last = [max(start for start, *_ in one) for one in every]
for rank, (_, sums) in enumerate(ranks):
    shapes = [one[2] for one in sums]
    counts = " + ".join(f"{shapes.count(one)} of {one}" for one in sorted(set(shapes)))
    wait = sum(begin - one[0] for one, begin in zip(sums, last, strict=True))
    whole = sum(end - start for start, end, _ in sums)
    print(
        f"rank {rank} | {len(sums)} all-reduces: {counts} | "
        f"{whole:.0f} ms, {wait:.0f} of them waiting"
    )
