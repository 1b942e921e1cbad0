import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        if ok := torch.isfinite(loss):
            scaler.scale(loss).backward()
        if ok:
            scaler.step(optimizer)
            scaler.update()
