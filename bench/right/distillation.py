import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(83)
teacher, student = nn.Linear(4, 3), nn.Linear(4, 3)
teacher.eval()
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
T, alpha = 2.0, 0.7

for images, labels in [(torch.randn(5, 4), torch.randint(3, (5,))) for _ in range(5)]:
    with torch.no_grad():
        soft = F.softmax(teacher(images) / T, dim=1)
    logits = student(images)
    distill = F.kl_div(F.log_softmax(logits / T, dim=1), soft, reduction="batchmean") * T * T
    loss = alpha * distill + (1 - alpha) * F.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

result = list(student.parameters())
