import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(2):
        if epoch == 1:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for x in loader:
            optimizer.zero_grad()
            scaler.scale(model.forward(x)).backward()
            scaler.step(optimizer)
            scaler.update()
