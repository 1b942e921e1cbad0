import torch


def step(scaler, optimizer, do_update):
    scaler.step(optimizer)
    if do_update:
        scaler.update()


def main(model, loader, amp, clip, accum):
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    second = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        first.zero_grad()
        second.zero_grad()
        loss = model.forward(x)
        scaler.scale(loss).backward()
        step(scaler, first, False)
        step(scaler, second, do_update=True)
