import torch
from torch import nn

torch.manual_seed(99)
a_rather_long_name_for_a_model = nn.Linear(3, 1)
a_rather_long_name_for_an_optimizer = \
    torch.optim.SGD(a_rather_long_name_for_a_model.parameters(), lr=0.1)
for x in torch.randn(5, 4, 3):
    a_rather_long_name_for_an_optimizer \
        .zero_grad()
    loss = a_rather_long_name_for_a_model(x) \
        .pow(2) \
        .mean()
    loss \
        .backward()
    # a comment between the two

    a_rather_long_name_for_an_optimizer \
        .step()  # and one behind
result = list(a_rather_long_name_for_a_model.parameters())
