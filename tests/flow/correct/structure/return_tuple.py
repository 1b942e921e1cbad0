import torch


def build(model, amp):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", enabled=amp)
    return optimizer, scaler


def main(model, loader, amp, clip, accum):
    optimizer, scaler = build(model, amp)
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model.forward(x)).backward()
        scaler.step(optimizer)
        scaler.update()
