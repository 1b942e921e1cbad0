import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    finish = [lambda: scaler.step(optimizer), lambda: scaler.update()]
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model.forward(x)).backward()
        for action in finish:
            action()
