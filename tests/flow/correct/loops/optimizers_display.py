import torch


def main(model, loader, amp, clip, accum):
    scaler = torch.amp.GradScaler("cuda")
    optimizers = [
        torch.optim.SGD(model.parameters(), lr=0.1),
        torch.optim.SGD(model.parameters(), lr=0.2),
    ]
    for x in loader:
        for optimizer in optimizers:
            optimizer.zero_grad()
        scaler.scale(model.forward(x)).backward()
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
