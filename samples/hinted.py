#!/usr/bin/env python3
"""hinted.py [REQUESTS [PERIOD_MS]]: gbpf_hint() of libgbpf from Python, by ctypes. The program is a periodic client whose
requests are a memset and a copy; one that uses PyTorch or CuPy calls hint() in the same way, before its next request."""
import ctypes
import os
import sys
import time


def load_gbpf():
    """Loads the installed libgbpf, or the one of this file's installation; returns None without gBPF."""
    here = os.path.dirname(os.path.abspath(__file__))
    for path in ("libgbpf.so.0", os.path.join(here, "..", "..", "libgbpf.so.0")):
        try:
            return ctypes.CDLL(path)
        except OSError:
            pass
    return None


gbpf = load_gbpf()
if gbpf:
    gbpf.gbpf_hint.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int]
    gbpf.gbpf_hint.restype = ctypes.c_int


def hint(seconds, deadline=0.0, device=-1):
    """Announces the next request in `seconds` seconds, due `deadline` seconds after that (0: not known)."""
    return gbpf.gbpf_hint(max(0, int(seconds * 1e6)), int(deadline * 1e6), device) if gbpf else -2


def check(result):
    if result:
        sys.exit(f"CUDA error {result}")


def main():
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    period = float(sys.argv[2]) / 1e3 if len(sys.argv) > 2 else 0.02
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, data = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    host, size = ctypes.create_string_buffer(4096), ctypes.c_size_t(4096)
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuMemAlloc_v2(ctypes.byref(data), size))
    taken = wrong = 0
    following = time.monotonic() + period
    for i in range(requests):
        taken += hint(following - time.monotonic(), period) == 0
        time.sleep(max(0.0, following - time.monotonic()))
        check(cuda.cuMemsetD8_v2(data, ctypes.c_ubyte(i % 251), size))
        check(cuda.cuMemcpyDtoH_v2(host, data, size))
        wrong += host.raw != bytes([i % 251]) * 4096
        following += period
    check(cuda.cuMemFree_v2(data))
    print(f"requests {requests}  hints taken {taken}  wrong {wrong}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
