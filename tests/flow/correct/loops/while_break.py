import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    data = iter(loader)
    while True:
        x = next(data, None)
        if x is None:
            break
        optimizer.zero_grad()
        loss = model.forward(x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
