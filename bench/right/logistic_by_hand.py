"""Weights and bias as leaf tensors, an optimizer written out."""
import torch

torch.manual_seed(125)
w = torch.randn(3, 1, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
X = torch.randn(20, 3)
t = (X.sum(1, keepdim=True) > 0).float()
eta = 0.5
for epoch in range(8):
    for leaf in (w, b):
        if leaf.grad is not None:
            leaf.grad.zero_()
    y = torch.sigmoid(X @ w + b)
    loss = -(t * y.log() + (1 - t) * (1 - y).log()).mean()
    loss.backward()
    with torch.no_grad():
        w -= eta * w.grad
        b -= eta * b.grad
result = [w, b]
