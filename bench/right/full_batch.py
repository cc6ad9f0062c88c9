import torch

torch.manual_seed(56)
x = torch.randn(16, 3)
y = x @ torch.tensor([[1.0], [-2.0], [0.5]])
model = torch.nn.Linear(3, 1)
loss_fn = torch.nn.MSELoss(reduction="sum")
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2)
for t in range(12):
    y_pred = model(x)
    loss = loss_fn(y_pred, y)
    if t % 5 == 4:
        print(t, round(loss.item(), 3))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
result = [model.weight, model.bias]
