import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for i, x in enumerate(loader):
        scaler.scale(model.forward(x)).backward()
        if not (i + 1) % accum:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    if (i + 1) % accum:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
