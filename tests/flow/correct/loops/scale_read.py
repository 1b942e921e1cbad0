import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model.forward(x)).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if before <= scaler.get_scale():
            pass
