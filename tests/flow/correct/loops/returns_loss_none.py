import torch


def backward(model, scaler, x):
    loss = model.forward(x)
    if not torch.isfinite(loss):
        return None
    scaler.scale(loss).backward()
    return loss


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        loss = backward(model, scaler, x)
        if loss is not None:
            scaler.step(optimizer)
            scaler.update()
