"""Weights are renormalised between steps, which does not affect gradients."""

import torch
import torch.nn.functional as F

torch.manual_seed(120)
prototypes = torch.nn.Linear(4, 3, bias=False)
encoder = torch.nn.Linear(5, 4)
optimizer = torch.optim.SGD([*encoder.parameters(), *prototypes.parameters()], lr=0.1)
freeze_prototypes_niters = 2
for iteration in range(6):
    with torch.no_grad():
        w = prototypes.weight.data.clone()
        prototypes.weight.copy_(F.normalize(w, dim=1))
    scores = prototypes(F.normalize(encoder(torch.randn(6, 5)), dim=1))
    loss = F.cross_entropy(scores / 0.1, torch.arange(6) % 3)
    optimizer.zero_grad()
    loss.backward()
    # cancel the prototypes' gradients at first
    if iteration < freeze_prototypes_niters:
        for name, p in prototypes.named_parameters():
            p.grad = None
    optimizer.step()
result = [*encoder.parameters(), *prototypes.parameters()]
