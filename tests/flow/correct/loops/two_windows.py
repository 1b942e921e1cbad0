import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for i, x in enumerate(loader):
        if i % accum == 0:
            optimizer.zero_grad()
        scaler.scale(model.forward(x)).backward()
        last = i == len(loader) - 1
        if not last and (i + 1) % accum != 0:
            continue
        scaler.step(optimizer)
        scaler.update()
