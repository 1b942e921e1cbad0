import contextlib

import torch


@contextlib.contextmanager
def stepping(optimizer, scaler):
    optimizer.zero_grad()
    yield
    scaler.step(optimizer)
    scaler.update()


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        with stepping(optimizer, scaler):
            scaler.scale(model.forward(x)).backward()
