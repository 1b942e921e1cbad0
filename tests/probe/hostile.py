"""Functions that do what no training should, each in front of an ordinary misuse."""

from __future__ import annotations

TEMPLATE = """
import ctypes, os, signal, socket, subprocess, sys, threading, time
import torch

HERE = {folder!r}

def train(model, optimizer, loader, scaler):
    {statement}
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
"""

#: What it does -> the statement that does it. `libc` is reached with ctypes, past every patch
#: of Python's own modules.
STATEMENTS = {
    "loops for ever": "while True: pass",
    "sleeps for ever": "time.sleep(10_000)",
    "forks": "os.fork()",
    "forks without end": "[ctypes.CDLL(None).fork() for _ in range(100)]",
    "starts a program": "subprocess.run(['touch', HERE + '/started'])",
    "allocates without end": "hoard = [bytearray(1 << 28) for _ in range(1 << 20)]",
    "writes to its home": "open(os.path.expanduser('~/written'), 'w').write('x')",
    "writes beside the source": "open(HERE + '/written', 'w').write('x')",
    "writes past Python": "ctypes.CDLL(None).creat((HERE + '/created').encode(), 0o600)",
    "removes its source": "os.remove(HERE + '/train.py')",
    "opens a socket": "socket.create_connection(('127.0.0.1', 9))",
    "leaves": "os._exit(0)",
    "exits": "sys.exit(0)",
    "kills its parent": "os.kill(os.getppid(), signal.SIGKILL)",
    "kills everybody": "ctypes.CDLL(None).kill(-1, 9)",
    "crashes": "ctypes.string_at(0)",
    "prints a gigabyte": "[sys.stdout.write('x' * (1 << 20)) for _ in range(1 << 10)]",
    "prints past Python": "[os.write(1, b'x' * (1 << 20)) for _ in range(1 << 10)]",
    "starts a thread that stays": "threading.Thread(target=time.sleep, args=(10_000,)).start()",
    "patches torch": "torch.amp.GradScaler.step = lambda *args: 1 / 0",
    "recurses": "(lambda f: f(f))(lambda f: f(f))",
}
