import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        for scaled in [scaler.scale(model.forward(x)), scaler.scale(model.forward(x))]:
            scaled.backward()
        scaler.step(optimizer)
        scaler.update()
