"""Say which file of a folder of shards has which rows of a tensor.

    python docs/labs/shard_files.py dcp.pt.shards/20 model.lm_head.weight
"""

import sys

from torch.distributed.checkpoint import FileSystemReader

folder, name = sys.argv[1:]
metadata = FileSystemReader(folder).read_metadata()
chunks = {tuple(chunk.offsets): chunk.sizes for chunk in metadata.state_dict_metadata[name].chunks}
for index, place in metadata.storage_data.items():
    if index.fqn == name:
        size = " x ".join(map(str, chunks[tuple(index.offset)]))
        print(f"{place.relative_path} has {size} from row {index.offset[0]}")
