"""Start of a PyTorch program that uses several libraries: prints the seconds until the first and until the last result, and its
peak and present resident memory in kB."""
import time

BEGIN = time.perf_counter()
import torch  # noqa: E402

x = torch.randn(64, 64, device='cuda')
y = (x @ x).softmax(1)
torch.cuda.synchronize()
first = time.perf_counter() - BEGIN
convolution = torch.nn.Conv2d(3, 8, 3).cuda()
convolution(torch.randn(1, 3, 32, 32, device='cuda')).sum().backward()
x.bfloat16() @ x.bfloat16()
torch.fft.fft(x)
torch.linalg.solve(x, y)
torch.cuda.synchronize()
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
print(f'{first:.3f} {time.perf_counter() - BEGIN:.3f} {status["VmHWM"].split()[0]} {status["VmRSS"].split()[0]}')
