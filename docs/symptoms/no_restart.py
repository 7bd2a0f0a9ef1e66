"""torchrun restarts no worker unless --max-restarts allows it."""

import os
import signal
import sys


def launch():
    from torch.distributed.run import main  # what the torchrun command calls

    words = ["--standalone", "--nproc_per_node=1", sys.argv[0]]
    if sys.argv[1:] == ["fixed"]:
        words.insert(2, "--max-restarts=3")
    print("torchrun", *words, flush=True)
    main(words)


if "TORCHELASTIC_RESTART_COUNT" not in os.environ:
    launch()
elif os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":  # the first start
    os.kill(os.getpid(), signal.SIGKILL)
else:
    print("the worker runs again")
