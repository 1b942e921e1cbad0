import torch


class Args:
    def __init__(self, amp, clip, accum):
        self.amp = amp
        self.fp16 = amp
        self.clip = clip
        self.accum = accum


def train(args, model, loader, optimizer, scaler):
    for i, x in enumerate(loader):
        loss = model.forward(x)
        if args.fp16:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if (i + 1) % args.accum == 0:
            if args.fp16:
                if args.clip:
                    scaler.unscale_(optimizer)
                    torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
                scaler.step(optimizer)
                scaler.update()
            else:
                if args.clip:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
                optimizer.step()
            optimizer.zero_grad()


def main(model, loader, amp, clip, accum):
    args = Args(amp, clip, accum)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = None
    if args.fp16:
        scaler = torch.amp.GradScaler("cuda")
    train(args, model, loader, optimizer, scaler)
