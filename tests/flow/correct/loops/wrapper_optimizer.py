import torch


class Optim:
    def __init__(self, optimizer, scaler):
        self.optimizer = optimizer
        self.scaler = scaler

    def backward(self, loss):
        self.scaler.scale(loss).backward()

    def clip(self, model):
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def zero_grad(self):
        self.optimizer.zero_grad()


def main(model, loader, amp, clip, accum):
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda"))
    for x in loader:
        optim.zero_grad()
        optim.backward(model.forward(x))
        optim.clip(model)
        optim.step()
