import torch
from torch import nn

torch.manual_seed(50)
seq = nn.Linear(4, 1)
inputs, target = torch.randn(6, 4), torch.randn(6, 1)
criterion = nn.MSELoss()
optimizer = torch.optim.LBFGS(seq.parameters(), lr=0.8, max_iter=4)

for i in range(3):
    print("STEP: ", i)

    def closure():
        optimizer.zero_grad()
        out = seq(inputs)
        loss = criterion(out, target)
        loss.backward()
        return loss

    optimizer.step(closure)

result = list(seq.parameters())
