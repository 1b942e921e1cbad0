import torch


class AmpMixin:
    scaler = None

    def setup_amp(self, amp):
        if amp:
            self.scaler = torch.amp.GradScaler("cuda")

    def backward(self, loss):
        if self.scaler:
            loss = self.scaler.scale(loss)
        loss.backward()

    def step(self):
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()


class Trainer(AmpMixin):
    def __init__(self, model, amp):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.setup_amp(amp)

    def fit(self, loader):
        for x in loader:
            self.optimizer.zero_grad()
            self.backward(self.model.forward(x))
            self.step()


def main(model, loader, amp, clip, accum):
    Trainer(model, amp).fit(loader)
