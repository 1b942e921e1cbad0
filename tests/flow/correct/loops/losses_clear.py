import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    losses = []
    for x in loader:
        losses.append(model.forward(x))
        if len(losses) == accum:
            for loss in losses:
                scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.clear()
    if losses:
        for loss in losses:
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
