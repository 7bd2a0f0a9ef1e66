"""How many parts of a batch of 8 reach a module in DataParallel, for two devices?

python docs/labs/silent.py
"""

import sys

import torch

if torch.accelerator.is_available():
    print("this machine has a GPU, so DataParallel uses it")
    sys.exit()
parts = []
module = torch.nn.Linear(20, 1)
module.register_forward_pre_hook(lambda _, inputs: parts.append(len(inputs[0])))
torch.nn.DataParallel(module, device_ids=[0, 1])(torch.ones(8, 20))
print(f"calls with parts of {parts[0]} samples: {len(parts)}")
