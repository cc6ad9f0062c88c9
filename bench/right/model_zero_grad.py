"""The model clears what its optimizer steps."""

import torch
import torch.nn as nn


class Tagger(nn.Module):
    def __init__(self, words=7, dim=4, tags=3):
        super().__init__()
        self.embedding = nn.Embedding(words, dim)
        self.lstm = nn.LSTM(dim, dim)
        self.out = nn.Linear(dim, tags)

    def forward(self, sentence):
        states, _ = self.lstm(self.embedding(sentence))
        return self.out(states).log_softmax(-1)


torch.manual_seed(7)
model = Tagger()
loss_function = nn.NLLLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
training_data = [(torch.randint(7, (5,)), torch.randint(3, (5,))) for _ in range(4)]

for epoch in range(3):
    for sentence, tags in training_data:
        model.zero_grad()
        tag_scores = model(sentence)
        loss = loss_function(tag_scores, tags)
        loss.backward()
        optimizer.step()

result = list(model.parameters())
