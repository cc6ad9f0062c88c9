import torch
from torch import nn

torch.manual_seed(45)
backbone = nn.Linear(3, 4)
classifier = nn.Linear(4, 2)
optimizer = torch.optim.SGD(
    [
        {"params": backbone.parameters(), "lr": 0.01},
        {"params": classifier.parameters(), "lr": 0.1},
    ]
)

for images, labels in [(torch.randn(6, 3), torch.randint(2, (6,))) for _ in range(4)]:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(classifier(backbone(images)), labels)
    loss.backward()
    for group in optimizer.param_groups:
        nn.utils.clip_grad_norm_(group["params"], 0.2)
    optimizer.step()

result = [p for group in optimizer.param_groups for p in group["params"]]
