import torch


def backward(loss, scaler=None):
    if scaler is None:
        loss.backward()
    else:
        scaler.scale(loss).backward()


def step(optimizer, scaler=None):
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda") if amp else None
    for x in loader:
        optimizer.zero_grad()
        backward(model.forward(x), scaler=scaler)
        step(optimizer, scaler=scaler)
