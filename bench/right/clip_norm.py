import torch
import torch.nn as nn

torch.manual_seed(40)
ntokens, bptt = 5, 3
model = nn.Sequential(nn.Embedding(ntokens, 4), nn.Linear(4, ntokens))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.95)
train_data = torch.randint(ntokens, (13,))

for epoch in range(3):
    model.train()
    for i in range(0, train_data.size(0) - 1, bptt):
        seq_len = min(bptt, len(train_data) - 1 - i)
        data, targets = train_data[i : i + seq_len], train_data[i + 1 : i + 1 + seq_len]
        output = model(data)
        loss = criterion(output, targets)

        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
    scheduler.step()

result = list(model.parameters())
