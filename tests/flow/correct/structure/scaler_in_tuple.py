import torch


def main(model, loader, amp, clip, accum):
    state = (torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda"))
    for x in loader:
        optimizer, scaler = state
        optimizer.zero_grad()
        scaler.scale(model.forward(x)).backward()
        scaler.step(optimizer)
        scaler.update()
