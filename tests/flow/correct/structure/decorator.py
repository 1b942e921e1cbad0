import torch


def logged(function):

    def wrapper(*args):
        return function(*args)

    return wrapper


@logged
def step(optimizer, scaler):
    scaler.step(optimizer)
    scaler.update()


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model.forward(x)).backward()
        step(optimizer, scaler)
