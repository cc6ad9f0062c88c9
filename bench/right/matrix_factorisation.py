import torch

torch.manual_seed(74)
R = torch.rand(5, 4)
U = torch.rand(5, 2, requires_grad=True)
V = torch.rand(4, 2, requires_grad=True)
optimizer_u = torch.optim.SGD([U], lr=0.5)
optimizer_v = torch.optim.SGD([V], lr=0.5)

# alternating minimisation
for sweep in range(6):
    optimizer_u.zero_grad()
    (R - U @ V.detach().T).pow(2).mean().backward()
    optimizer_u.step()
    optimizer_v.zero_grad()
    (R - U.detach() @ V.T).pow(2).mean().backward()
    optimizer_v.step()

result = [U, V]
