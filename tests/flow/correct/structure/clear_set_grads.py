import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        for p in model.parameters():
            p.grad = None
        scaler.scale(model.forward(x)).backward()
        scaler.step(optimizer)
        scaler.update()
        for p in model.parameters():
            p.grad = None
        optimizer.zero_grad()
