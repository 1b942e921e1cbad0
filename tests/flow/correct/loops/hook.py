import torch


class Hook:
    def __init__(self, trainer):
        self.trainer = trainer

    def after_backward(self):
        self.trainer.scaler.unscale_(self.trainer.optimizer)
        torch.nn.utils.clip_grad_norm_(self.trainer.model.parameters(), 1.0)


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda")
        self.hooks = [Hook(self)]

    def fit(self, loader):
        for x in loader:
            self.optimizer.zero_grad()
            self.scaler.scale(self.model.forward(x)).backward()
            for hook in self.hooks:
                hook.after_backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()


def main(model, loader, amp, clip, accum):
    Trainer(model).fit(loader)
