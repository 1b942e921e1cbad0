import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model.forward(x)).backward()
        scaler.unscale_(optimizer)
        optimizer.zero_grad()
        scaler.update()
        scaler.scale(model.forward(x)).backward()
        scaler.step(optimizer)
        scaler.update()
