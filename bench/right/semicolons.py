import torch
import torch.nn as nn

torch.manual_seed(98)
model = nn.Linear(3, 2); optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(2):
    for i in range(3):
        x = torch.randn(4, 3); y = torch.randint(2, (4,))
        loss = nn.functional.cross_entropy(
            model(x),
            y)
        optimizer.zero_grad(); loss.backward()
        nn.utils.clip_grad_norm_(
            model.parameters(),
            0.1); optimizer.step()
result = list(model.parameters())
