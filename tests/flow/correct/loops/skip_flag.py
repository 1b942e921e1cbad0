import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        skip = not torch.isfinite(loss)
        if not skip:
            scaler.scale(loss).backward()
        if not skip:
            scaler.step(optimizer)
            scaler.update()
