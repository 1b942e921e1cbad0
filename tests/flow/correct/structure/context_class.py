import torch


class Stepping:
    def __init__(self, optimizer, scaler):
        self.optimizer = optimizer
        self.scaler = scaler

    def __enter__(self):
        self.optimizer.zero_grad()
        return self

    def __exit__(self, *args):
        self.scaler.step(self.optimizer)
        self.scaler.update()


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        with Stepping(optimizer, scaler):
            scaler.scale(model.forward(x)).backward()
