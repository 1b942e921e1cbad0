import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model.forward(x)).backward()
        scaler.unscale_(optimizer)
        if clip:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        else:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        if not torch.isfinite(norm):
            optimizer.zero_grad()
            scaler.update()
            continue
        scaler.step(optimizer)
        scaler.update()
