import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    remainder = len(loader) % accum
    for i, x in enumerate(loader):
        loss = model.forward(x)
        scaler.scale(loss).backward()
        if (i + 1) % accum == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    if remainder:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
