import torch


class Base:
    def __init__(self, model, amp):
        self.model = model
        self.amp = amp
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda") if amp else None

    def optimize(self, loss):
        self.backward(loss)
        if self.amp:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad()

    def backward(self, loss):
        raise NotImplementedError


class Trainer(Base):
    def backward(self, loss):
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        loss.backward()

    def fit(self, loader):
        for x in loader:
            self.optimize(self.model.forward(x))


def main(model, loader, amp, clip, accum):
    Trainer(model, amp).fit(loader)
