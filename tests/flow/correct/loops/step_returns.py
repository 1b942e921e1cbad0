import torch


def train_step(model, optimizer, scaler, x):
    optimizer.zero_grad()
    loss = model.forward(x)
    if not torch.isfinite(loss):
        return None
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        if train_step(model, optimizer, scaler, x) is None:
            continue
