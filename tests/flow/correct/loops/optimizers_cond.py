import torch


def main(model, loader, amp, clip, accum):
    scaler = torch.amp.GradScaler("cuda")
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1)]
    if clip:
        optimizers.append(torch.optim.SGD(model.parameters(), lr=0.1))
    for x in loader:
        [optimizer.zero_grad() for optimizer in optimizers]
        scaler.scale(model.forward(x)).backward()
        [scaler.step(optimizer) for optimizer in optimizers]
        scaler.update()
