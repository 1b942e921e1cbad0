import torch


class State:
    def __init__(self):
        self.sync = False


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    state = State()
    for i, x in enumerate(loader):
        state.sync = (i + 1) % accum == 0
        loss = model.forward(x)
        scaler.scale(loss).backward()
        if state.sync:
            scaler.unscale_(optimizer)
        if state.sync:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
