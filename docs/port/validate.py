"""Validate classifier.pt in one process, with what classifier.py has."""

import torch
from classifier import Shapes, build_model, evaluate
from torch import nn
from torch.utils.data import DataLoader

model = build_model()
model.load_state_dict(torch.load("classifier.pt", map_location="cpu"))
loader = DataLoader(Shapes(501, seed=2), batch_size=64)
loss, accuracy = evaluate(model, loader, nn.CrossEntropyLoss(), "cpu")
print(f"classifier.pt | val loss {loss:.4f} | accuracy {accuracy:.1%}")
