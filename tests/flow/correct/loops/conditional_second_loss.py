import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for i, x in enumerate(loader):
        optimizer.zero_grad()
        loss = model.forward(x)
        scaled = scaler.scale(loss)
        if clip is not None:
            scaled = scaled + scaler.scale(model.forward(x))
        scaled.backward()
        scaler.step(optimizer)
        scaler.update()
