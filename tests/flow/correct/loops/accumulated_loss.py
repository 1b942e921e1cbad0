import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    accumulated = 0.0
    for i, x in enumerate(loader):
        loss = model.forward(x)
        scaler.scale(loss).backward()
        accumulated += loss.item()
        if (i + 1) % accum == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            accumulated = 0.0
    if accumulated > 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
