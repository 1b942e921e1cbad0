"""The parts of the benchmark's training script that occur once: model, trainer, main."""

from __future__ import annotations

MODEL = '''
class Model(nn.Module):
    """A stack of blocks with a linear head."""

    def __init__(self, channels, classes, names, checkpointing=False):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 4, stride=4)
        self.blocks = nn.ModuleList(BLOCKS[name](channels) for name in names)
        self.head = nn.Linear(channels, classes)
        self.checkpointing = checkpointing

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            if self.checkpointing and self.training:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(x.mean(dim=(-2, -1)))


class Average(nn.Module):
    """Exponential moving average of the weights."""

    def __init__(self, model, decay):
        super().__init__()
        self.decay = decay
        self.shadow = {name: value.detach().clone() for name, value in model.state_dict().items()}
        self.backup = None

    @torch.no_grad()
    def update(self, model):
        for name, value in model.state_dict().items():
            if value.dtype.is_floating_point:
                self.shadow[name].lerp_(value, 1 - self.decay)
            else:
                self.shadow[name].copy_(value)

    @contextlib.contextmanager
    def applied(self, model):
        self.backup = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(self.shadow)
        try:
            yield model
        finally:
            model.load_state_dict(self.backup)
            self.backup = None
'''

TRAINER = '''
class Trainer:
    """Trains a model; every feature has its switch in the configuration."""

    def __init__(self, config, model, train_loader, valid_loader, device):
        self.config = config
        self.device = device
        self.model = model.to(device)
        self.train_loader = train_loader
        self.valid_loader = valid_loader
        self.use_amp = config.amp and device.type == "cuda"
        self.optimizer = self.build_optimizer()
        self.scaler = torch.amp.GradScaler("cuda") if self.use_amp else None
        self.average = Average(model, config.ema_decay) if config.ema else None
        self.criterion = nn.CrossEntropyLoss(label_smoothing=config.label_smoothing)
        self.metrics = {name: METRICS[name](config.classes) for name in config.metrics}
        self.schedule = SCHEDULES[config.schedule]
        self.global_step = 0
        self.best = -math.inf
        self.history = []
        self.started = time.time()

    def build_optimizer(self):
        decayed, others = [], []
        for name, parameter in self.model.named_parameters():
            if not parameter.requires_grad:
                continue
            if parameter.ndim < 2 or name.endswith(("bias", "scale")):
                others.append(parameter)
            else:
                decayed.append(parameter)
        groups = [
            {"params": decayed, "weight_decay": self.config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        if self.config.optimizer == "sgd":
            return torch.optim.SGD(groups, lr=self.config.lr, momentum=0.9, nesterov=True)
        if self.config.optimizer == "adamw":
            return torch.optim.AdamW(groups, lr=self.config.lr, betas=(0.9, 0.95))
        raise ValueError(f"unknown optimizer {self.config.optimizer}")

    def autocast(self):
        return torch.autocast("cuda", dtype=torch.float16, enabled=self.use_amp)

    def adjust_learning_rate(self):
        total = self.config.epochs * len(self.train_loader)
        rate = self.schedule(self.global_step, total, self.config.lr)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def mix(self, images, targets):
        if self.config.mixup <= 0 or random.random() > self.config.mixup_chance:
            return images, targets, None
        weight = random.betavariate(self.config.mixup, self.config.mixup)
        order = torch.randperm(len(images), device=images.device)
        mixed = weight * images + (1 - weight) * images[order]
        return mixed, targets, (targets[order], weight)

    def compute_loss(self, images, targets, partner):
        output = self.model(images)
        loss = self.criterion(output, targets)
        if partner is not None:
            others, weight = partner
            loss = weight * loss + (1 - weight) * self.criterion(output, others)
        if self.config.entropy_weight > 0:
            probabilities = output.float().softmax(dim=-1)
            entropy = -(probabilities * probabilities.clamp_min(1e-6).log()).sum(dim=-1)
            loss = loss - self.config.entropy_weight * entropy.mean()
        return loss, output

    def backward(self, loss):
        if self.scaler is not None:
            self.scaler.scale(loss).backward()
        else:
            loss.backward()

    def clip_gradients(self):
        if self.config.clip_norm is None:
            return None
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        return float(norm)

    def optimizer_step(self):
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(self.model)

    def train_one_epoch(self, epoch):
        self.model.train()
        for metric in self.metrics.values():
            metric.reset()
        accumulated = 0.0
        seen = 0
        self.optimizer.zero_grad(set_to_none=True)
        for index, (images, targets) in enumerate(self.train_loader):
            rate = self.adjust_learning_rate()
            images = images.to(self.device, non_blocking=True)
            targets = targets.to(self.device, non_blocking=True)
            images, targets, partner = self.mix(images, targets)
            boundary = (index + 1) % self.config.accumulate == 0
            boundary = boundary or index + 1 == len(self.train_loader)
            with self.autocast():
                loss, output = self.compute_loss(images, targets, partner)
                loss = loss / self.config.accumulate
            if not torch.isfinite(loss):
                logger.warning("loss is not finite in step %d", self.global_step)
                if self.config.stop_on_nan:
                    raise FloatingPointError("loss is not finite")
            self.backward(loss)
            accumulated += loss.item() * self.config.accumulate * len(images)
            seen += len(images)
            if boundary:
                norm = self.clip_gradients()
                self.optimizer_step()
                self.log_step(epoch, index, accumulated / seen, rate, norm)
            for metric in self.metrics.values():
                metric.update(output.detach(), targets)
            self.global_step += 1
            if self.config.max_steps and self.global_step >= self.config.max_steps:
                break
        return self.collect(accumulated / max(1, seen))

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        for metric in self.metrics.values():
            metric.reset()
        total, seen = 0.0, 0
        context = self.average.applied(self.model) if self.average else contextlib.nullcontext()
        with context:
            for images, targets in self.valid_loader:
                images = images.to(self.device, non_blocking=True)
                targets = targets.to(self.device, non_blocking=True)
                with self.autocast():
                    output = self.model(images)
                    loss = self.criterion(output, targets)
                total += loss.item() * len(images)
                seen += len(images)
                for metric in self.metrics.values():
                    metric.update(output, targets)
        return self.collect(total / max(1, seen))

    def collect(self, loss):
        results = {"loss": loss}
        for name, metric in self.metrics.items():
            metric.synchronize(self.device)
            results[name] = metric.compute()
        return results

    def log_step(self, epoch, index, loss, rate, norm):
        if index % self.config.log_every != 0:
            return
        record = {"epoch": epoch, "step": self.global_step, "loss": loss, "lr": rate}
        if norm is not None:
            record["norm"] = norm
        if self.scaler is not None:
            record["scale"] = self.scaler.get_scale()
        self.history.append(record)
        logger.info(json.dumps(record))

    def checkpoint(self, epoch, results):
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": epoch,
            "step": self.global_step,
            "results": results,
            "best": self.best,
        }
        if self.scaler is not None:
            state["scaler"] = self.scaler.state_dict()
        if self.average is not None:
            state["average"] = self.average.shadow
        path = Path(self.config.output) / f"epoch{epoch}.pt"
        torch.save(state, path)
        if results[self.config.monitor] > self.best:
            self.best = results[self.config.monitor]
            torch.save(state, path.with_name("best.pt"))
        self.remove_old(path.parent)

    def remove_old(self, folder):
        files = sorted(folder.glob("epoch*.pt"), key=os.path.getmtime)
        for old in files[: -self.config.keep]:
            old.unlink()

    def resume(self, path):
        state = torch.load(path, map_location=self.device)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler is not None and "scaler" in state:
            self.scaler.load_state_dict(state["scaler"])
        if self.average is not None and "average" in state:
            self.average.shadow = state["average"]
        self.global_step = state["step"]
        self.best = state["best"]
        return state["epoch"] + 1

    def fit(self):
        first = self.resume(self.config.resume) if self.config.resume else 0
        for epoch in range(first, self.config.epochs):
            sampler = self.train_loader.sampler
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            results = {f"train_{key}": value for key, value in self.train_one_epoch(epoch).items()}
            if (epoch + 1) % self.config.evaluate_every == 0:
                results.update(self.evaluate())
                self.checkpoint(epoch, results)
            minutes = (time.time() - self.started) / 60
            logger.info("epoch %d after %.1f min: %s", epoch, minutes, results)
        return self.best
'''

MAIN = """
def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)


def build_loaders(config):
    train = DATASETS[config.dataset](config.data, cache=config.cache)
    valid = DATASETS[config.valid_dataset](config.data)
    train_loader = DataLoader(
        train, config.batch_size, shuffle=True, num_workers=config.workers, drop_last=True
    )
    valid_loader = DataLoader(valid, config.batch_size, num_workers=config.workers)
    return train_loader, valid_loader


def main():
    config = parse_arguments()
    logging.basicConfig(level=logging.INFO)
    seed_everything(config.seed)
    Path(config.output).mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Model(config.channels, config.classes, config.blocks, config.checkpointing)
    train_loader, valid_loader = build_loaders(config)
    trainer = Trainer(config, model, train_loader, valid_loader, device)
    print(trainer.fit())


if __name__ == "__main__":
    main()
"""
