#!/usr/bin/env python3
"""A malicious tenant: implements the session protocol (src/proto/wire.h) without a driver and attacks gbpfd and other
tenants with everything that its pages and descriptors allow.

    hostile.py ATTACK [SEED]

Prints "ready" when the attack has begun, and attacks until it is killed or its parent exits. Reconnects when gbpfd drops the
connection. Exits by itself only with a Python error. GBPF_RUNTIME_DIR: runtime folder of gbpfd. The GPU is the first one
that `gbpf device` lists."""
import array, ctypes, fcntl, json, mmap, os, pathlib, random, re, shutil, signal, socket, struct, subprocess, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from eventually import eventually

WIRE = pathlib.Path(__file__).resolve().parents[2] / "src/proto/wire.h"
MAGIC, VERSION = 0x53706267, int(re.search(r"PROTO_VERSION (\d+)u", WIRE.read_text())[1])
(HELLO, WELCOME, REFUSED, MAPPED, PREPARE, PREPARED, DROP, BOARD_ADD, BOARD_REMOVE, SET, NOTE, QUEUED, DEVICES, DEVICES_ARE,
 CONTROL, FLAG, FLAG_ADD, FLAG_REMOVE, REQUEST, MEM_ASK) = range(1, 21)
LATENCY, NORMAL, BATCH = range(3)
MOST = 2**64 - 1
BOARD_GPU = 64  # bytes of a GPU's part of a board
STATS_GPU = 24880  # offset of the first GPU's part of the statistics: launches, copies, busy_ns, inflight, inflight_ns
F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE, F_SEAL_FUTURE_WRITE = 1033, 1, 2, 4, 8, 16
SIZES = {HELLO: 1056, MAPPED: 16, PREPARED: 40, NOTE: 304, DEVICES: 472, CONTROL: 536, FLAG: 32, REQUEST: 16, MEM_ASK: 48}
ACCOUNT = 942080  # bytes of a vGPU's account


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def page(size=4096, beyond=0, seals=F_SEAL_SHRINK | F_SEAL_GROW):
    fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    if beyond:
        ctypes.CDLL(None).fallocate(fd, 1, ctypes.c_long(size), ctypes.c_long(beyond))
    fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


class Dropped(OSError):
    """gbpfd ended the connection, refused the tenant or did not answer in time."""


class Tenant:
    def __init__(self, uuid):
        self.uuid, self.flags, self.boards, self.board, self.stats, self.fds = uuid, {}, {}, None, None, []
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(os.environ["GBPF_RUNTIME_DIR"] + "/session.sock")

    def send(self, kind, body=b"", fds=(), size=None):
        size = SIZES[kind] if size is None else size
        text = (struct.pack("=4I", MAGIC, VERSION, kind, size) + body).ljust(size, b"\0")[:size]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.sock.sendmsg([text], rights)

    def hello(self, class_id, name="hostile", flags=0, fds=(), tenant=0, regions=0, version=0, vgpu=(0, 0, 0, 0, 0), vgpu_name=b"",
              mem=0):
        body = struct.pack("=4I", flags, class_id, 100, 1) + self.uuid.ljust(256, b"\0")
        body += struct.pack("=Q4I", version, tenant, regions, 0, 0) + name.encode().ljust(64 + 256, b"\0")
        number, limit, made_ns, accounts, line = vgpu
        body += vgpu_name.ljust(32, b"\0") + struct.pack("=18Q", number, made_ns, *[limit] * 16) + struct.pack("=4Q", 0, 0, 0, 0)
        body += struct.pack("=2IiI2I", 0, 0, 0, 0, accounts, line) + struct.pack("=16Q", *[mem] * 16)
        self.send(HELLO, body, fds)

    def receive(self, timeout=120):
        self.sock.settimeout(timeout)
        try:
            data, rights, _, _ = self.sock.recvmsg(4096, socket.CMSG_SPACE(4 * 8), socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, TimeoutError):
            return None
        fds = array.array("i")
        for _, _, part in rights:
            fds.frombytes(part)
        return (struct.unpack_from("=I", data, 8)[0] if data else 0), data, list(fds)

    def enter(self, class_id, name="hostile"):
        self.hello(class_id, name)
        kind, data, fds = self.receive() or (None, b"", [])
        if kind != WELCOME:
            raise Dropped(data)
        self.fds = fds
        self.board, self.stats = mmap.mmap(fds[1], 4096), mmap.mmap(fds[2], 32768)
        self.send(MAPPED)
        return self

    def listen(self, seconds=0.0, answer=True):
        """Receives messages for the time given; keeps boards and flag pages of other tenants open. Returns False when gbpfd
        has ended the connection."""
        until = time.monotonic() + seconds
        while (got := self.receive(max(0.001, until - time.monotonic()))):
            kind, data, fds = got
            if kind == 0:
                return False
            if kind == FLAG_ADD:
                self.flags[struct.unpack_from("=4I", data, 16)[1]] = fds.pop()
            elif kind == FLAG_REMOVE:
                pass  # what was given once is kept
            elif kind == BOARD_ADD:
                self.boards[struct.unpack_from("=2I", data, 16)[0]] = fds.pop()
            elif kind == PREPARE and answer:
                self.send(PREPARED, data[16:24])
            for fd in fds:
                os.close(fd)
        return True

    def write_board(self, gpu=0, **words):
        where = {"open": ("=I", 0), "seq": ("=I", 4), "opened": ("=Q", 8), "end": ("=Q", 16), "next": ("=Q", 24),
                 "deadline": ("=Q", 32)}
        for name, value in words.items():
            form, at = where[name]
            struct.pack_into(form, self.board, gpu * BOARD_GPU + at, value)

    def beat(self, value):
        struct.pack_into("=Q", self.board, 16 * BOARD_GPU + 8, value)


def uuid_of_gpu():
    """Waits until the first program has made a GPU known to gbpfd."""
    def known():
        said = subprocess.run(["gbpf", "--json", "device"], capture_output=True).stdout
        found = json.loads(said or "{}").get("devices")  # gbpfd may be away
        return found and found[0]["uuid"]
    return bytes.fromhex(eventually(known).removeprefix("GPU-").replace("-", ""))


begun = False


def rounds():
    global begun
    if not begun:
        begun = True
        print("ready", flush=True)
    while True:
        yield


def become_other():
    """gbpfd limits what ordinary users can do to each other."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


def end_with_parent():
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        sys.exit("the parent has ended")


def latency_with_pages(uuid):
    t = Tenant(uuid).enter(LATENCY)
    while not t.flags:
        if not t.listen(0.2):
            raise Dropped("before the first flag page")
    return t


# ---- attacks ----


def leases(uuid, rnd):
    """Writes random values to all words of the flag pages of other tenants, also after the leases, faster than any tenant reads."""
    t = latency_with_pages(uuid)
    words = [mmap.mmap(fd, 4096) for fd in t.flags.values()]
    far = [struct.pack("=I", w) * 1024 for w in (2**32 - 1, 2**31 - 1, 2**31, 1)]
    for i, _ in enumerate(rounds()):
        clock = time.time_ns() >> 16  # of the soft GPU, in a lease's unit
        for w in words:
            w[:] = rnd.choice(far + [rnd.randbytes(4096), struct.pack("=I", (clock + 2**30) % 2**32) * 1024] * 4)
        if i % 50 == 0:
            t.listen()


def stale(uuid, rnd):
    """Repeatedly sets leases for all tenants that expire after hours, then disconnects and leaves them behind."""
    for _ in rounds():
        t = latency_with_pages(uuid)
        for fd in t.flags.values():
            mmap.mmap(fd, 4096)[:] = struct.pack("=I", ((time.time_ns() >> 16) + 2**30) % 2**32) * 1024
        os.close(t.sock.detach())


def seals(uuid, rnd):
    """Truncates, closes and empties the flag pages of other tenants."""
    t = latency_with_pages(uuid)
    libc = ctypes.CDLL(None)
    for fd in t.flags.values():
        for seal in (F_SEAL_FUTURE_WRITE, F_SEAL_WRITE, F_SEAL_SEAL):
            try:
                fcntl.fcntl(fd, F_ADD_SEALS, seal)
            except OSError:
                pass
    for _ in rounds():
        for fd in t.flags.values():
            for size in (0, 1, 1 << 40):
                try:
                    os.ftruncate(fd, size)
                except OSError:
                    pass
            libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(4096))  # a hole where the leases are
        t.listen(0.01)


def liar(uuid, rnd):
    """Opens a request that never ends, on a board whose words change all the time."""
    t = Tenant(uuid).enter(LATENCY)
    times = (0, 1, MOST, MOST - 1, 2**63, 2**63 - 1)
    for i, _ in enumerate(rounds()):
        at = times + (now(), now() + 10**9, max(now() - 10**12, 1))  # the machine may have been up for less
        t.beat(rnd.choice((0, MOST, now())))
        t.write_board(open=rnd.choice((1, 2**32 - 1)), seq=i % 2**32, opened=rnd.choice(at), end=rnd.choice(at),
                      next=rnd.choice(at), deadline=rnd.choice(at))
        if i % 100 == 0:
            t.send(REQUEST)
            t.listen()


def idle(uuid, rnd):
    """As another user, without any work on the GPU: shows one open request for ever, renewed like an honest agent's."""
    become_other()
    t = Tenant(uuid).enter(LATENCY, "idle")
    t.write_board(open=1, opened=now())
    for _ in rounds():
        t.beat(now())
        t.write_board(open=1)
        t.listen(0.02)


def reborn(uuid, rnd):
    """As idle, but disconnects and comes back ten times a second."""
    become_other()
    for _ in rounds():
        t = Tenant(uuid).enter(LATENCY, "reborn")
        for _ in range(10):
            t.beat(now())
            t.write_board(open=1, opened=now())
            t.listen(0.01)
        for fd in t.fds + list(t.flags.values()) + list(t.boards.values()):
            os.close(fd)
        t.board.close()
        t.stats.close()
        t.sock.close()


def keeper(uuid, rnd):
    """As another user, writes leases for hours to the flag pages of others, and never opens a request."""
    become_other()
    t = latency_with_pages(uuid)
    words = [mmap.mmap(fd, 4096) for fd in t.flags.values()]
    for _ in rounds():
        for w in words:
            w[:] = struct.pack("=I", ((time.time_ns() >> 16) + 2**30) % 2**32) * 1024
        t.listen(0.001)


def herald(uuid, rnd):
    """As idle, but announces a request for now instead of opening one."""
    become_other()
    t = Tenant(uuid).enter(LATENCY, "herald")
    for _ in rounds():
        t.beat(now())
        t.write_board(next=now())
        t.listen(0.001)


def promises(uuid, rnd):
    """Announces requests for now or for any time, and never opens one."""
    t = Tenant(uuid).enter(LATENCY)
    for i, _ in enumerate(rounds()):
        at = now() if i % 4 else rnd.choice((1, MOST, 2**63, now() + 10**10, now() - 10**6))
        t.write_board(next=at, deadline=rnd.getrandbits(64))
        if i % 100 == 0:
            t.listen()


def nonsense(uuid, rnd):
    """Writes random words to its own pages, and falsely reports its own death."""
    tenants = [Tenant(uuid).enter(c) for c in (LATENCY, BATCH, NORMAL)]
    for i, _ in enumerate(rounds()):
        t = tenants[i % 3]
        t.stats[:] = rnd.randbytes(32768) if i % 8 else b"\xff" * 32768
        t.board[:1024] = rnd.randbytes(1024)
        t.board[1040:3088] = rnd.randbytes(2048)
        t.beat(rnd.getrandbits(64))
        if rnd.random() < 0.02:
            struct.pack_into("=I", t.board, 1024, 1 << 30)
            t.sock.close()
            tenants[i % 3] = Tenant(uuid).enter(i % 3)
        t.listen() if t.sock.fileno() >= 0 else None


def descriptors(rnd):
    """Returns descriptors of all kinds; the caller closes them."""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    c, d = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    b.close()
    r, w = os.pipe()
    made = [a.detach(), c.detach(), d.detach(), r, w, os.memfd_create("x")]
    made += [os.open("/", os.O_RDONLY), os.open("/proc/self/exe", os.O_RDONLY)]
    made += [os.open("/dev/zero", os.O_RDWR), os.open("/dev/null", os.O_RDWR)]
    made += [page(), page(32768), page(270336), page(270336), page(4096, 16 << 20), page(1 << 30), page(4096, 0, 15), page(4096, 0, F_SEAL_SHRINK)]
    rnd.shuffle(made)
    return made


def messages(uuid, rnd):
    """Sends random messages, also partial ones, with random words and descriptors, and disconnects at random steps."""
    for _ in rounds():
        t = Tenant(uuid)
        step = rnd.randrange(4)
        made = descriptors(rnd)
        try:
            if step >= 1:
                t.hello(rnd.randrange(3), flags=rnd.choice((0, 0, 0, 1, 2, 4, 8, 8, 9, 12, 16)), fds=made[: rnd.randrange(4)],
                        regions=rnd.choice((0, 1, 2, 3, 31, 2**32 - 1)), tenant=rnd.choice((0, 1, 1023, 1024, 2**32 - 1)), version=rnd.getrandbits(4),
                        vgpu=(rnd.choice((0, 0, 1, 2)), rnd.choice((0, 2**24, 2**64 - 1)), rnd.choice((0, 2**63)),
                              rnd.choice((0, 0, 1, 2)), rnd.choice((0, 1, 255, 256, 2**32 - 1))),
                        vgpu_name=rnd.choice((b"", b"", b"train", b"9x", b"../x", b"\xff" * 32)), mem=rnd.choice((0, 1, 2**64 - 1)))
            if step >= 2 and t.receive(0.2):
                t.send(MAPPED)
            for _ in range(rnd.randrange(12)):
                kind = rnd.randrange(0, 33)
                size = SIZES.get(kind, 300)
                words = [rnd.choice((0, 0, 1, 2, 15, 16, 255, 512, 2**31, 2**32 - 1)) for _ in range(8)]
                body = rnd.randbytes(size) if rnd.random() < 0.3 else struct.pack("=8I", *words)
                size = size if rnd.random() < 0.8 else rnd.randrange(16, 700)
                t.send(kind, body, made[: rnd.choice((0, 0, 1, 1, 2, 5, 9, 16))], size)
            if rnd.random() < 0.5:
                t.listen(0.01, answer=rnd.random() < 0.5)
        except OSError:
            pass
        for fd in made + list(t.flags.values()) + list(t.boards.values()):
            os.close(fd)
        t.sock.close()


def claims(uuid, rnd):
    """Joins vGPUs, writes garbage into their accounts, reports wrong sizes of the GPU, and asks for memory without end."""
    become_other()
    for _ in rounds():
        t = Tenant(uuid)
        try:
            t.hello(NORMAL, vgpu=(rnd.randrange(1, 20), rnd.choice((0, 2**24, 2**50)), now(), 0, 0),
                    mem=rnd.choice((0, 1, 2**24, 2**50, 2**64 - 1)))
            kind, _, fds = t.receive() or (None, b"", [])
            if kind == WELCOME:
                account = mmap.mmap(fds[3], ACCOUNT)
                t.send(MAPPED)
                for seq in range(1, 400):
                    for at in rnd.choices(range(0, ACCOUNT, 8), k=20) + list(range(0, 512, 8)):
                        struct.pack_into("=Q", account, at, rnd.choice((0, 1, 2**24, 2**30, 2**63, MOST, rnd.getrandbits(64))))
                    t.send(MEM_ASK, struct.pack("=2I2QI", 0 if seq < 390 else rnd.randrange(20), seq, rnd.choice((0, 1, 2**24, 2**30, MOST)),
                                                rnd.choice((0, 10**6, MOST)), rnd.choice((0, 0, 1, 3, 2**32 - 1))))
                t.listen(0.01)
                account.close()
            for fd in fds:
                os.close(fd)
        except OSError:
            pass
        t.sock.close()


def borrowed(uuid, rnd):
    """Reconnects as after a restart of gbpfd, and offers pages and flag pages of other tenants as its own."""
    t = latency_with_pages(uuid)
    t.listen(0.3)
    theirs = list(t.flags.values()) + list(t.boards.values()) + t.fds
    for _ in rounds():
        u, own = Tenant(uuid), page(32768)
        try:
            pages = rnd.choice(theirs), own if rnd.random() < 0.7 else rnd.choice(theirs)
            u.hello(rnd.randrange(3), "borrower", 1, pages, rnd.randrange(4))
            if (got := u.receive(1)) and got[0] == WELCOME:
                u.send(MAPPED)
                for fd in theirs:
                    u.send(FLAG, struct.pack("=4I", 0, 0, 0, 0), [fd])
                u.listen(0.05)
                if rnd.random() < 0.5:
                    u.send(FLAG, struct.pack("=4I", 0, 1, 0, 0))
        except OSError:
            pass
        for fd in [own, *u.flags.values(), *u.boards.values()]:
            os.close(fd)
        u.sock.close()


def mute(uuid, rnd):
    """Opens many connections that never answer, never read, or stop after the first message."""
    deaf = [Tenant(uuid).enter(i % 3) for i in range(24)]
    begun = [Tenant(uuid) for _ in range(24)]
    for t in begun[::2]:
        t.hello(LATENCY)
    ears = [Tenant(uuid).enter(BATCH) for _ in range(8)]
    for _ in rounds():
        for t in ears:
            t.listen(0.01, answer=False)
    del deaf


def offers(uuid, rnd):
    """Adds and removes flag pages as fast as gbpfd allows; each change sends a message to each latency tenant."""
    tenants = [Tenant(uuid).enter(BATCH) for _ in range(32)]
    pages = [page() for _ in range(2)]
    for i, _ in enumerate(rounds()):
        for t in tenants:
            t.send(FLAG, struct.pack("=4I", 0, 0, 0, 0), [pages[i % 2]])
        time.sleep(0.006)  # 200 a second are taken, more is an end


def churn(uuid, rnd):
    """Connects and disconnects latency tenants; each board sends a message to each other process."""
    for _ in rounds():
        t = Tenant(uuid).enter(LATENCY)
        for fd in t.fds:
            os.close(fd)
        t.board.close()
        t.stats.close()
        t.sock.close()


def gigabytes(uuid, rnd):
    """Passes large memory files, which the process that closes them last must free."""
    for _ in rounds():
        for kind in (FLAG, HELLO, CONTROL):
            t = Tenant(uuid)
            fd = page(4096, int(os.environ.get("HOSTILE_BYTES", 1 << 28)))
            try:
                if kind == HELLO:
                    t.hello(LATENCY, flags=1, fds=(fd, fd))
                else:
                    t.enter(BATCH).send(kind, struct.pack("=4I", 0, 0, 0, 0), [fd])
            except OSError:
                pass
            os.close(fd)
            t.listen(0.05)
            t.sock.close()


SPIN = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry spin()
{
	.reg .pred %p;
	.reg .b32 %r;
	mov.u32 %r, 0;
again:
	add.u32 %r, %r, 1;
	setp.lt.u32 %p, %r, 20000;
	@%p bra again;
	ret;
}
\0"""


class Driver:
    """The library of the soft GPU without the shim."""

    def __init__(self):
        prefix = os.path.dirname(os.path.dirname(shutil.which("gbpf")))
        self.lib = ctypes.CDLL(prefix + "/lib/gbpf/soft/libcuda.so.1")
        context, module, self.kernel, table = (ctypes.c_void_p() for _ in range(4))
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), SPIN)
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"spin")
        self.call("cuGetExportTable", ctypes.byref(table), b"gBPF-soft-gpu-01")
        address = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[9]  # src/cuabi/private.h: control_open
        fd = ctypes.c_int(-1)
        error = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))(address)(context, ctypes.byref(fd))
        assert error == 0, error
        self.control = fd.value

    def call(self, name, *arguments):
        error = getattr(self.lib, name)(*arguments)
        assert error == 0, (name, error)

    def work(self):
        for _ in range(8):
            self.call("cuLaunchKernel", self.kernel, 256, 1, 1, 32, 1, 1, 0, None, None, None)
        self.call("cuCtxSynchronize")


def deaf(uuid, rnd):
    """Registers correctly as a batch tenant, ignores all boards and leases, and fills the GPU."""
    t, gpu = Tenant(uuid).enter(BATCH, "deaf"), Driver()
    handles = struct.pack("=7I", 2, 0, 0, 0, 0, 0b1101111, 0).ljust(476, b"\0")
    t.send(CONTROL, struct.pack("=2I", 0, len(handles)) + handles, [gpu.control])
    for i, _ in enumerate(rounds()):
        struct.pack_into("=Q", t.stats, 0, 8 * i)
        struct.pack_into("=2Q", t.stats, 104, 8, 8000000)  # in flight, and for how long
        struct.pack_into("=5Q", t.stats, STATS_GPU, 8 * i, 0, 0, 8, 8000000)
        gpu.work()
        t.listen()


if __name__ == "__main__":
    attack = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    attacks = {f.__name__: f for f in (leases, claims, stale, seals, liar, promises, nonsense, messages, borrowed, mute, gigabytes, deaf, idle, reborn, keeper, herald,
                                          offers, churn)}
    end_with_parent()
    while True:
        try:
            attacks[attack](uuid_of_gpu(), random.Random(seed))
        except OSError:
            time.sleep(0.01)  # until gbpfd, which may have been killed, accepts connections again
