import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for i, x in enumerate(loader):
        scaler.scale(model.forward(x)).backward()
        is_last = (i + 1) == len(loader)
        is_boundary = (i + 1) % accum == 0
        should = is_last or is_boundary
        if should and clip is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        if should:
            scaler.step(optimizer)
            scaler.update()
        if should:
            optimizer.zero_grad()
