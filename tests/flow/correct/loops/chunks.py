import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        total = 0.0
        for chunk in (x, x):
            loss = model.forward(chunk)
            scaled = scaler.scale(loss)
            scaled.backward()
            total += loss.item()
        if total > 0:
            scaler.step(optimizer)
            scaler.update()
