import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = amp and torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        if scaler:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
