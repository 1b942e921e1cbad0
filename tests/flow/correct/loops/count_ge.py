import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    count = 0
    for x in loader:
        loss = model.forward(x)
        scaler.scale(loss).backward()
        count += 1
        if count < accum:
            continue
        count = 0
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
