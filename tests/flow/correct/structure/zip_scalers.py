import torch


def main(model, loader, amp, clip, accum):
    optimizers = [
        torch.optim.SGD(model.parameters(), lr=0.1),
        torch.optim.SGD(model.parameters(), lr=0.1),
    ]
    scalers = [torch.amp.GradScaler("cuda") for _ in optimizers]
    for x in loader:
        for optimizer, scaler in zip(optimizers, scalers):
            optimizer.zero_grad()
            scaler.scale(model.forward(x)).backward()
            scaler.step(optimizer)
            scaler.update()
