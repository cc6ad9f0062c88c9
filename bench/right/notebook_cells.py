# %%
import torch
from torch import nn

torch.manual_seed(55)

# %% the data
X = torch.linspace(-1, 1, 24).unsqueeze(1)
Y = X.pow(3)

# %% the model
model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.Adam(model.parameters(), lr=0.02)
history = []

# %% training
for epoch in range(4):
    perm = torch.randperm(len(X))
    for i in range(0, len(X), 8):
        idx = perm[i : i + 8]
        pred = model(X[idx])
        loss = ((pred - Y[idx]) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    history.append(loss.item())

# %%
result = list(model.parameters())
