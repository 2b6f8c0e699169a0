#!/usr/bin/env python3
"""ffmpeg_filters FILTER RUNNER...: runs a CUDA filter of ffmpeg by `RUNNER... ffmpeg ...` and the filter for the processor that
computes the same, on synthetic frames, and compares the raw frames. Prints the figures; exit code 1 if they differ by more than
the filter's tolerance, which stands with each case below and says why."""
import math
import subprocess
import sys

W, H = 160, 120
FFMPEG = ['ffmpeg', '-hide_banner', '-loglevel', 'error', '-nostdin']
DEVICE = ['-init_hw_device', 'cuda=c', '-filter_hw_device', 'c']
SOURCE = f'testsrc=size={W}x{H}:rate=5,format=yuv420p'
# Values that no interpolation drives out of a byte: the CUDA kernels do not clamp.
SOFT = SOURCE + ',lutyuv=y=64+val/2:u=64+val/2:v=64+val/2'
EXACT = '+accurate_rnd+full_chroma_int'
failures = 0


def frames(command, inputs, graph, pixels, n):
	result = subprocess.run([*command, *(x for i in inputs for x in ('-f', 'lavfi', '-i', i)), '-filter_complex', graph,
		'-frames:v', str(n), '-pix_fmt', pixels, '-f', 'rawvideo', '-'], capture_output=True, check=False)
	if result.returncode or not result.stdout:
		sys.exit(f'{" ".join(command[:3])} ... {graph}: exit {result.returncode}\n{result.stderr.decode()}')
	return result.stdout


def report(name, ok, text):
	global failures
	failures += not ok
	print(f'{"ok" if ok else "FAILED"} {name}: {text}')


def compare(name, mine, theirs, most=0, psnr=None, share=1.0):
	"""Compares all bytes: the largest difference, the ratio of signal to noise in dB, and the share of bytes that differ."""
	if len(mine) != len(theirs):
		report(name, False, f'{len(mine)} bytes, expected {len(theirs)}')
		return
	differences = [abs(a - b) for a, b in zip(mine, theirs)]
	worst, unequal = max(differences), sum(d > 0 for d in differences) / len(differences)
	error = sum(d * d for d in differences) / len(differences)
	level = 10 * math.log10(255 * 255 / error) if error else math.inf
	report(name, (psnr is None and worst <= most or psnr is not None and level >= psnr) and unequal <= share,
		f'largest difference {worst}, {level:.1f} dB, {unequal:.2%} differ')


def both(name, runner, gpu, cpu, source=SOURCE, n=2, **tolerance):
	up = f'[0]hwupload,{gpu},hwdownload,format=yuv420p'
	compare(name, frames(runner + FFMPEG + DEVICE, [source], up, 'yuv420p', n), frames(FFMPEG, [source], f'[0]{cpu}', 'yuv420p', n),
		**tolerance)


def scale(runner):
	"""Nearest and bilinear: equal. Halving with bilinear is an average of four, which scale calls area. Bicubic and lanczos: the
	kernels weigh in floats, scale in 14 bits: at most 1 (bicubic with the 0.75 of the kernels, lanczos of two lobes)."""
	for algorithm, flags, (w, h), most in (('nearest', 'neighbor', (96, 72), 0), ('nearest', 'neighbor', (2 * W, 2 * H), 0),
			('bilinear', 'bilinear', (2 * W, 2 * H), 0), ('bilinear', 'area', (W // 2, H // 2), 0),
			('bicubic', 'bicubic', (2 * W, 2 * H), 1), ('lanczos', 'lanczos', (2 * W, 2 * H), 1)):
		parameters = {'bicubic': ':param0=0:param1=0.75', 'lanczos': ':param0=2'}.get(algorithm, '')
		both(f'scale_cuda {algorithm} {w}x{h}', runner, f'scale_cuda={w}:{h}:interp_algo={algorithm}',
			f'scale={w}:{h}:flags={flags}{EXACT}{parameters}', SOFT, most=most)


def yadif(runner):
	"""The CUDA kernel chooses between directions with a threshold that is 1 higher, and repeats the edge where yadif mirrors it: at
	least 48 dB, at most 2 % of the bytes differ."""
	source = f'testsrc=size={W}x{H}:rate=10,tinterlace=interleave_top,format=yuv420p'
	both('yadif_cuda', runner, 'yadif_cuda', 'yadif', source, psnr=48, share=0.02)
	both('yadif_cuda, a frame for each field', runner, 'yadif_cuda=mode=send_field', 'yadif=mode=send_field', source, n=4, psnr=48,
		share=0.02)


def overlay(runner):
	"""Equal."""
	inputs = [SOURCE, 'testsrc2=size=48x40:rate=5,format=yuv420p']
	gpu = frames(runner + FFMPEG + DEVICE, inputs,
		'[0]hwupload[a];[1]hwupload[b];[a][b]overlay_cuda=x=20:y=30,hwdownload,format=yuv420p', 'yuv420p', 2)
	compare('overlay_cuda', gpu, frames(FFMPEG, inputs, '[0][1]overlay=x=20:y=30:format=yuv420', 'yuv420p', 2))


def thumbnail(runner):
	"""Both take the first frame whose histogram is nearest to the mean: of six frames, the first of the four that are alike. The
	frame itself is equal."""
	source = f"testsrc=size={W}x{H}:rate=6,format=yuv420p,lutyuv=y=val/8,trim=end_frame=1[a];" \
		f"testsrc2=size={W}x{H}:rate=6,format=yuv420p,trim=end_frame=1,loop=3:1[b];color=white:size={W}x{H}:rate=6," \
		'format=yuv420p,trim=end_frame=1[c];[a][b][c]concat=n=3,setpts=N/6/TB'
	both('thumbnail_cuda', runner, 'thumbnail_cuda=6', 'thumbnail=6', source, n=1)


def chromakey(runner):
	"""The kernel samples between texels, so that its planes are averages of neighbours (chromakey_cuda of ffmpeg 5.1, on every
	device): compared where the colour does not change within 4 pixels. Luma and chroma equal, alpha at most 2 (the kernel
	computes it in floats)."""
	gpu = frames(runner + FFMPEG + DEVICE, [SOURCE],
		'[0]hwupload,chromakey_cuda=0x00FF00:0.2:0.1,hwdownload,format=yuva420p', 'yuva420p', 1)
	cpu = frames(FFMPEG, [SOURCE], '[0]format=yuva420p,chromakey=0x00FF00:0.2:0.1', 'yuva420p', 1)
	planes, at = [], 0
	for w, h in ((W, H), (W // 2, H // 2), (W // 2, H // 2), (W, H)):
		planes.append((w, h, gpu[at:at + w * h], cpu[at:at + w * h]))
		at += w * h
	around = [(x, y) for x in range(-4, 5) for y in range(-4, 5)]

	def is_flat(x, y):
		return all(plane[y * w // W * w + x * w // W] == plane[(y + b) * w // W * w + (x + a) * w // W]
			for w, _, _, plane in planes[:3] for a, b in around)
	flat = {(x, y) for y in range(4, H - 4) for x in range(4, W - 4) if is_flat(x, y)}
	opaque = {planes[3][3][y * W + x] for x, y in flat}
	report('chromakey_cuda, flat areas', len(flat) > W * H / 4 and {0, 255} <= opaque, f'{len(flat)} pixels, alpha of {sorted(opaque)}')
	for name, most, (w, _, mine, theirs) in zip('YUVA', (0, 0, 0, 2), planes):
		places = {y * w // W * w + x * w // W for x, y in flat}
		compare(f'chromakey_cuda {name}', [mine[i] for i in places], [theirs[i] for i in places], most=most)


FILTERS = {f.__name__: f for f in (scale, yadif, overlay, thumbnail, chromakey)}

if len(sys.argv) < 2 or sys.argv[1] not in FILTERS:
	sys.exit(f'usage: ffmpeg_filters {"|".join(FILTERS)} [RUNNER...]')
FILTERS[sys.argv[1]](sys.argv[2:])
sys.exit(1 if failures else 0)
