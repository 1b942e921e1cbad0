import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    micro = 0
    for x in loader:
        loss = model.forward(x)
        scaler.scale(loss).backward()
        micro = (micro + 1) % accum
        if micro == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    if micro != 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
