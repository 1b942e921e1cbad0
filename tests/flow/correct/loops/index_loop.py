import torch


def main(model, loader, amp, clip, accum):
    scaler = torch.amp.GradScaler("cuda")
    optimizers = [
        torch.optim.SGD(model.parameters(), lr=0.1),
        torch.optim.SGD(model.parameters(), lr=0.2),
    ]
    for i, x in enumerate(loader):
        index = i % 2
        optimizers[index].zero_grad()
        scaler.scale(model.forward(x)).backward()
        scaler.step(optimizers[index])
        scaler.update()
