"""No optimizer: weights moved by hand, their gradients zeroed by hand."""

import torch

torch.manual_seed(57)
x = torch.linspace(-3, 3, 20)
y = torch.sin(x)
a = torch.randn((), requires_grad=True)
b = torch.randn((), requires_grad=True)
learning_rate = 1e-3
for t in range(10):
    y_pred = a * x + b * x**3
    loss = (y_pred - y).pow(2).sum()
    loss.backward()
    with torch.no_grad():
        a -= learning_rate * a.grad
        b -= learning_rate * b.grad * 0.01
        # Manually zero the gradients after updating weights
        a.grad = None
        b.grad = None
result = [a, b]
