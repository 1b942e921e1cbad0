import torch


class Trainer:
    def __init__(self, model, amp):
        self.model = model
        self.amp = amp
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda") if amp else None

    @property
    def use_amp(self):
        return self.amp

    def fit(self, loader):
        for x in loader:
            self.optimizer.zero_grad()
            loss = self.model.forward(x)
            if self.use_amp:
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
            else:
                loss.backward()
                self.optimizer.step()
            if self.scaler is not None:
                self.scaler.update()


def main(model, loader, amp, clip, accum):
    Trainer(model, amp).fit(loader)
