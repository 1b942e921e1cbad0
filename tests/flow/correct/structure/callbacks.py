import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")

    def unscale():
        scaler.unscale_(optimizer)

    hooks = [unscale] if clip else []
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model.forward(x)).backward()
        for hook in hooks:
            hook()
        scaler.step(optimizer)
        scaler.update()
