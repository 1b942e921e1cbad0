import torch


class Trainer:
    def __init__(self, model, amp):
        self.model = model
        self.amp = amp
        self.scaler = None
        self.setup()

    def setup(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        if self.amp:
            self.scaler = torch.amp.GradScaler("cuda")

    def fit(self, loader):
        for x in loader:
            self.optimizer.zero_grad()
            loss = self.model.forward(x)
            if self.amp:
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                loss.backward()
                self.optimizer.step()


def main(model, loader, amp, clip, accum):
    Trainer(model, amp).fit(loader)
