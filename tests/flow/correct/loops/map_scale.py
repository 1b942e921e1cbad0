import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        losses = [scaler.scale(model.forward(x)) for _ in range(2)]
        for loss in losses:
            loss.backward()
        scaler.step(optimizer)
        scaler.update()
