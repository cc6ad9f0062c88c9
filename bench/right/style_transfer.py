"""An image is trained instead of weights."""

import torch
from torch import nn

torch.manual_seed(73)
features = nn.Conv2d(1, 2, 3)
for p in features.parameters():
    p.requires_grad_(False)
content = features(torch.rand(1, 1, 6, 6))
image = torch.rand(1, 1, 6, 6, requires_grad=True)
optimizer = torch.optim.Adam([image], lr=0.05)
for i in range(6):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(features(image), content)
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        image.clamp_(0, 1)
result = [image]
