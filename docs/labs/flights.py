"""Find the first collective in which the flight recorders of the ranks differ.

    python docs/labs/flights.py flight_0 flight_1

A call is the same on two ranks if it has the same number, the same name and
the same shape. The file and line are those of the last caller outside of torch.
"""

import pickle
import sys
from pathlib import Path

numbers, ranks = set(), []
for file in sys.argv[1:]:
    entries = pickle.loads(Path(file).read_bytes())["entries"]
    ranks.append({entry["collective_seq_id"]: entry for entry in entries})
    numbers |= ranks[-1].keys()


def call(entry):
    return f"{entry['profiling_name']} {entry['input_sizes']}" if entry else "nothing"


def place(entry):
    for frame in entry["frames"] if entry else []:
        if "/torch/" not in frame["filename"]:
            return f", {Path(frame['filename']).name}:{frame['line']}"
    return ""


for number in sorted(numbers):
    entries = [calls.get(number) for calls in ranks]
    if len({call(entry) for entry in entries}) > 1:
        for rank, entry in enumerate(entries):
            print(f"#{number} | rank {rank} | {call(entry)}{place(entry)}")
        break
    print(f"#{number} | all ranks | {call(entries[0])}")
else:
    print("no difference")
