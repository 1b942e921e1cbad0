import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        a, b = model.forward(x), model.forward(x)
        scaled = [scaler.scale(a), scaler.scale(b)]
        total = sum(scaled[1:], scaled[0])
        total.backward()
        scaler.step(optimizer)
        scaler.update()
