"""Functions that do what no training should, each in front of an ordinary misuse."""

from __future__ import annotations

TEMPLATE = """
import ctypes, os, signal, socket, subprocess, sys, threading, time
import torch

HERE = {folder!r}

def _raise(message): raise RuntimeError(message)

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
    # Not spelled out: a path would end there, and nothing behind it would be asked about.
    "leaves": "getattr(os, '_ex' + 'it')(0)",
    "exits": "sys.exit(0)",
    "kills its parent": "os.kill(os.getppid(), signal.SIGKILL)",
    "kills everybody": "ctypes.CDLL(None).kill(-1, 9)",
    "crashes": "ctypes.string_at(0)",
    "prints a gigabyte": "[sys.stdout.write('x' * (1 << 20)) for _ in range(1 << 10)]",
    "prints past Python": "[os.write(1, b'x' * (1 << 20)) for _ in range(1 << 10)]",
    "starts a thread that stays": "threading.Thread(target=time.sleep, args=(10_000,)).start()",
    "patches torch": "torch.amp.GradScaler.step = lambda *args: 1 / 0",
    "recurses": "(lambda f: f(f))(lambda f: f(f))",
    # files: by other calls, descriptors, links and names
    "appends to its source": "open(HERE + '/train.py', 'a').write('#')",
    "truncates its source": "os.truncate(HERE + '/train.py', 0)",
    "opens its source to write": "os.open(HERE + '/train.py', os.O_WRONLY | os.O_TRUNC)",
    "renames its source": "os.rename(HERE + '/train.py', HERE + '/gone.py')",
    "replaces its source": "os.replace('/etc/hostname', HERE + '/train.py')",
    "links to its source": "os.link(HERE + '/train.py', HERE + '/second.py')",
    "makes a symbolic link": "os.symlink('/etc/passwd', HERE + '/passwd')",
    "makes a folder": "os.makedirs(HERE + '/deep/er')",
    "makes a pipe": "os.mkfifo(HERE + '/pipe')",
    "removes a tree": "__import__('shutil').rmtree(HERE)",
    "copies a tree": "__import__('shutil').copytree(HERE, HERE + '/copy')",
    "writes with pathlib": "__import__('pathlib').Path(HERE, 'path').write_text('x')",
    "writes by torch": "torch.save(torch.ones(3), HERE + '/weights.pt')",
    "writes by numpy": "__import__('numpy').save(HERE + '/array.npy', [1])",
    "writes a database": "__import__('sqlite3').connect(HERE + '/data.db').execute('create table t(a)')",
    "writes a shelf": "__import__('shelve').open(HERE + '/shelf')['a'] = 1",
    "writes a log": "__import__('logging').basicConfig(filename=HERE + '/log', force=True)",
    "writes a temporary file": "__import__('tempfile').NamedTemporaryFile(dir=HERE, delete=False)",
    "writes through proc": "open('/proc/self/root' + HERE + '/written', 'w').write('x')",
    "writes by io": "__import__('io').FileIO(HERE + '/raw', 'w').write(b'x')",
    "writes by _io": "__import__('_io').open(HERE + '/raw', 'w').write('x')",
    "opens by libc": "ctypes.CDLL(None).open((HERE + '/opened').encode(), 0o101, 0o600)",
    "removes by libc": "ctypes.CDLL(None).unlink((HERE + '/train.py').encode())",
    "renames by libc": "ctypes.CDLL(None).rename((HERE + '/train.py').encode(), b'/tmp/gone.py')",
    "changes the mode": "os.chmod(HERE + '/train.py', 0o777)",
    "changes the time": "os.utime(HERE + '/train.py', (0, 0))",
    "leaves its root": "os.chroot('/')",
    "mounts": "ctypes.CDLL(None).mount(b'none', HERE.encode(), b'tmpfs', 0, None)",
    "maps a file": "__import__('mmap').mmap(os.open(HERE + '/train.py', os.O_RDWR), 0)[:1] = b'#'",
    # processes and signals
    "starts by system": "os.system('touch ' + HERE + '/system')",
    "starts by popen": "os.popen('touch ' + HERE + '/popen').read()",
    "starts by spawn": "os.posix_spawn('/bin/sh', ['sh', '-c', 'touch ' + HERE + '/spawned'], {})",
    "becomes another program": "os.execv('/bin/sh', ['sh', '-c', 'touch ' + HERE + '/became'])",
    "starts by libc": "ctypes.CDLL(None).system(('touch ' + HERE + '/libc').encode())",
    "starts a pool": "__import__('multiprocessing').Pool(2).map(abs, [1])",
    "starts a daemon": "os.fork() or (os.setsid(), os.fork() or time.sleep(10_000))",
    "ignores every signal": "[signal.signal(n, signal.SIG_IGN) for n in (2, 15)]; time.sleep(10_000)",
    "blocks every signal": "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); time.sleep(999)",
    "stops itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "stops its parent": "os.kill(os.getppid(), signal.SIGSTOP)",
    "interrupts its group": "os.killpg(0, signal.SIGINT)",
    "raises its limits": "__import__('resource').setrlimit(7, (1 << 20, 1 << 20))",
    "traces its parent": "ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)",
    # time and memory
    "starts a thousand threads": "[threading.Thread(target=time.sleep, args=(999,)).start() for _ in 'x' * 999]",
    "counts for ever": "sum(1 for _ in iter(int, 1))",
    "grows a tensor": "torch.empty(1 << 42)",
    "grows an integer": "9 ** 9 ** 9",
    "matches for ever": "__import__('re').match('(a*)*b', 'a' * 99)",
    "waits for a lock": "[lock.acquire() for lock in [threading.Lock()] * 2]",
    "waits for input": "sys.stdin.read()",
    "reads a device for ever": "open('/dev/zero', 'rb').read()",
    "catches everything": "exec('while True:\\n try: time.sleep(99)\\n except BaseException: pass')",
    # the network, and what stands beside it
    "sends a datagram": "socket.socket(2, 2).sendto(b'x', ('127.0.0.1', 9))",
    "listens": "socket.create_server(('127.0.0.1', 0))",
    "asks for a name": "socket.getaddrinfo('localhost', 80)",
    "fetches a page": "__import__('urllib.request').request.urlopen('http://127.0.0.1:9/')",
    "connects by libc": "ctypes.CDLL(None).socket(1, 1, 0)",
    "loads weights from the network": "torch.hub.load_state_dict_from_url('http://127.0.0.1:9/x.pt')",
    # the other side
    "closes every file": "os.closerange(0, 256)",
    "floods its results": "[os.write(n, b'x' * 4096) for n in range(3, 64)]",
    "answers itself": '[os.write(n, b\'{"status": "returned"}\\n\') for n in range(1, 64)]',
    "hides its modules": "sys.modules.clear()",
    "traces its run": "sys.settrace(lambda *_: sys.exit(0))",
    "wraps the exit": "__import__('atexit').register(os._exit, 0)",
    "recurses in C": "[eval('(' * 90 + ')' * 90) for _ in range(9)]",
}

#: Statements that make a correct loop look like a missing `update()`: none of them may be
#: confirmed, because what fails is not torch.
FORGERIES = {
    "a step that raises": "scaler.step = lambda *_: _raise('step() has already been called since')",
    "an optimizer that raises": "optimizer.step = lambda *_: _raise('step() has already been called')",
    "a class whose update does nothing": "torch.amp.GradScaler.update = lambda *_: None",
    "a class that raises": "torch.amp.GradScaler.step = lambda *_: _raise('already been called')",
    "a state that says so": "scaler._per_optimizer_states[id(optimizer)]['stage'] = 2",
    "an error at once": "_raise('step() has already been called since the last update().')",
    "an error of the right type": "raise RuntimeError('step() has already been called')",
    "a step before": "scaler.step(optimizer); scaler.step(optimizer)",
    "another scaler": "scaler = type('Scaler', (), dict(scale=lambda s, x: x, step=_raise))()",
    "a line that lies": "exec(compile('\\n' * 14 + '_raise(0)', HERE + '/train.py', 'exec'))",
    "a forged answer": '[os.write(n, b\'{"status": "raised"}\\n\') for n in range(3, 20)]',
}
