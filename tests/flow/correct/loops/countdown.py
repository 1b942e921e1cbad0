import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    left = accum
    for x in loader:
        loss = model.forward(x)
        scaler.scale(loss).backward()
        left -= 1
        if left == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            left = accum
    if left != accum:
        scaler.step(optimizer)
        scaler.update()
