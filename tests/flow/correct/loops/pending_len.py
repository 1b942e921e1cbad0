import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    pending = []
    for x in loader:
        loss = model.forward(x)
        scaler.scale(loss).backward()
        pending.append(x)
        if len(pending) >= accum:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            pending = []
    if len(pending) > 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
