import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        scaler.scale(loss).backward()
        if not torch.isfinite(loss):
            optimizer.zero_grad()
            continue
        scaler.step(optimizer)
        scaler.update()
