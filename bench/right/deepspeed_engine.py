import deepspeed
import torch
from torch import nn

torch.manual_seed(113)
net = nn.Linear(3, 2)
engine, _, _, _ = deepspeed.initialize(
    model=net,
    model_parameters=net.parameters(),
    config={"optimizer": {"type": "Adam", "params": {"lr": 0.05}}},
)
for x, y in [(torch.randn(4, 3), torch.randint(2, (4,))) for _ in range(5)]:
    loss = nn.functional.cross_entropy(engine(x), y)
    engine.backward(loss)
    engine.step()
result = list(net.parameters())
