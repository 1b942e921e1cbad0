import torch


def main(model, loader, amp, clip, accum):
    optimizers = {
        "a": torch.optim.SGD(model.parameters(), lr=0.1),
        "b": torch.optim.SGD(model.parameters(), lr=0.1),
    }
    scalers = {name: torch.amp.GradScaler("cuda") for name in optimizers}
    for x in loader:
        for name, optimizer in optimizers.items():
            optimizer.zero_grad()
            scalers[name].scale(model.forward(x)).backward()
            scalers[name].step(optimizer)
            scalers[name].update()
