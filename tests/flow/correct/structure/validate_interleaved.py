import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")

    def validate():
        for x in loader:
            model.forward(x)

    for i, x in enumerate(loader):
        optimizer.zero_grad()
        scaler.scale(model.forward(x)).backward()
        if i % 2 == 0:
            validate()
        scaler.step(optimizer)
        scaler.update()
