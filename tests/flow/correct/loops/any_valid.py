import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        optimizer.zero_grad()
        valid = 0
        for x in (batch, batch):
            loss = model.forward(x)
            if not torch.isfinite(loss):
                continue
            scaler.scale(loss).backward()
            valid += 1
        if valid == 0:
            continue
        scaler.step(optimizer)
        scaler.update()
