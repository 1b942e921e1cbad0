import torch


class Trainer:
    def __init__(self, model, amp):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda", enabled=amp)

    def before(self):
        self.optimizer.zero_grad()

    def forward(self, x):
        self.loss = self.model.forward(x)

    def backward(self):
        self.scaler.scale(self.loss).backward()

    def after(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def run(self, loader):
        for x in loader:
            self.before()
            self.forward(x)
            self.backward()
            self.after()


def main(model, loader, amp, clip, accum):
    Trainer(model, amp).run(loader)
