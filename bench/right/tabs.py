import torch
import torch.nn as nn

torch.manual_seed(121)


class Learner:
	def __init__(self, net, lr = 0.1):
		self.net = net
		self.opt = torch.optim.SGD(net.parameters(), lr = lr)

	def fit(self, xs, ys, epochs = 2):
		for e in range(epochs):
			for x, y in zip(xs, ys):
				self.opt.zero_grad()
				loss = nn.functional.mse_loss(self.net(x), y)
				loss.backward()
				nn.utils.clip_grad_norm_(self.net.parameters(), 0.4)	# keep it small
				self.opt.step()


net = nn.Linear(2, 1)
Learner(net).fit(torch.randn(4, 3, 2), torch.randn(4, 3, 1))
result = list(net.parameters())
