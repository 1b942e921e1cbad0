import torch


def backward(model, scaler, x):
    loss = model.forward(x)
    if not torch.isfinite(loss):
        return False
    scaler.scale(loss).backward()
    return True


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        if backward(model, scaler, x):
            scaler.step(optimizer)
            scaler.update()
