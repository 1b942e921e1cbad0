import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    total = len(loader)
    for i, x in enumerate(loader, start=1):
        loss = model.forward(x)
        scaler.scale(loss).backward()
        if i % accum == 0 or i == total:
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
