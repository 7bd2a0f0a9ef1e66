import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader, TensorDataset

STEPS = 16

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
x = torch.randn(128, 6)
loader = DataLoader(TensorDataset(x, x[:, :1] * x[:, 1:2]), 4, shuffle=True)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
scheduler = LinearLR(optimizer, 1.0, 0.01, total_iters=STEPS * accelerator.num_processes)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
for x, y in loader:
    loss = F.mse_loss(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
accelerator.print(f"rate {scheduler.get_last_lr()[0]:.5f}")
accelerator.end_training()
