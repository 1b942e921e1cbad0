import torch


class Stepper:
    def __init__(self, amp):
        self.scaler = torch.amp.GradScaler("cuda", enabled=amp)
        self.count = 0

    def __call__(self, loss, optimizer, every):
        self.scaler.scale(loss).backward()
        self.count += 1
        if self.count % every == 0:
            self.scaler.step(optimizer)
            self.scaler.update()
            optimizer.zero_grad()


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = Stepper(amp)
    for x in loader:
        stepper(model.forward(x), optimizer, accum)
