import torch


class Base:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda")

    def before_step(self):
        pass

    def fit(self, loader):
        for x in loader:
            self.optimizer.zero_grad()
            self.scaler.scale(self.model.forward(x)).backward()
            self.before_step()
            self.scaler.step(self.optimizer)
            self.scaler.update()


class Clipped(Base):
    def before_step(self):
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)


def main(model, loader, amp, clip, accum):
    Clipped(model).fit(loader)
