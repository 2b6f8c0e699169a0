"""Common parts of the scripts of this folder: programs with timeouts, gbpfd, MPS, the soft GPU for trials, and a report that keeps
what was measured when a part fails. Every process that is started here gets a process group of its own and is ended by its id."""
import argparse
import json
import os
import pathlib
import random
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from eventually import eventually

DRIVERS = ('/usr/local/nvidia/lib64/libcuda.so.1', '/usr/lib/x86_64-linux-gnu/libcuda.so.1', '/usr/lib64/libcuda.so.1')
PATIENCE = max(1, int(os.environ.get('GBPF_PATIENCE') or 1))  # of the test suite, whose machine may be busy
DROP = ('LD_PRELOAD', 'GBPF_REAL_CUDA', 'GBPF_OFF', 'GBPF_CLASS', 'GBPF_NAME', 'GBPF_STRICT', 'GBPF_HINT', 'GBPF_BLOCK', 'GBPF_CACHE',
	'GBPF_CACHE_DIR', 'CUDA_MPS_PIPE_DIRECTORY')
MARK = 'GBPF_TESTBED'  # in the environment of every process that a testbed starts


class Failed(Exception):
	"""A program that failed or timed out; the text says which and why."""


def quantile(values, q):
	v = sorted(values)
	return v[min(len(v) - 1, int(q * len(v)))]


def interval(values, f=statistics.median, resamples=1000):
	"""Returns the 95 % bootstrap interval of f over the values."""
	r = random.Random(1)
	got = sorted(f(r.choices(values, k=len(values))) for _ in range(resamples))
	return got[int(0.025 * resamples)], got[int(0.975 * resamples) - 1]


def arguments(doc, **defaults):
	"""Returns a parser with the options that all scripts have."""
	p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
	prefix = next((str(HERE.parent.parent / x) for x in ('bundle', 'out') if (HERE.parent.parent / x / 'bin/gbpf').exists()), None)
	p.add_argument('--gbpf', default=f'{prefix}/bin/gbpf' if prefix else shutil.which('gbpf'), help='an installed gbpf, or that of a bundle')
	p.add_argument('--device', choices=('nvidia', 'soft'), default='nvidia')
	p.add_argument('--libcuda', help="the driver's libcuda.so.1, if it is not where drivers put it")
	p.add_argument('--python', default=sys.executable, help='has the frameworks')
	p.add_argument('--limit', type=float, default=defaults.get('limit', 600), help='seconds after which nothing new begins (%(default)g)')
	p.add_argument('--json', help='write the rows there')
	return p


# ---- processes ----

def end(p, patience=5):
	"""Ends a process and its group."""
	for sig in (signal.SIGTERM, signal.SIGKILL):
		try:
			os.killpg(p.pid, sig)
		except ProcessLookupError:
			pass
		try:
			p.wait(patience)
			if sig == signal.SIGKILL:
				return
		except subprocess.TimeoutExpired:
			pass


def sweep(value, name=MARK):
	"""Kills the processes with that variable in their environment that are still there, such as an MPS daemon whose gbpfd was killed."""
	for path in pathlib.Path('/proc').glob('[0-9]*/environ'):
		try:
			if f'{name}={value}'.encode() in path.read_bytes().split(b'\0'):
				os.kill(int(path.parent.name), signal.SIGKILL)
		except OSError:
			pass


def tail(text, n=400):
	"""Returns the last lines of a message, without the stack that C++ programs print behind it."""
	lines = [x for x in text.strip().splitlines() if x.strip() and not x.lstrip().startswith(('frame #', '@ ', '***'))]
	return ' | '.join(lines[-3:])[-n:] if lines else 'no message'


def run(command, env, seconds, ok=(0,)):
	"""Runs a command; returns its output and messages. Raises Failed on another exit status or after the timeout."""
	p = subprocess.Popen([str(c) for c in command], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
		text=True, errors='replace', start_new_session=True)
	name = ' '.join(os.path.basename(str(c)) for c in command[:6])
	try:
		out, err = p.communicate(timeout=seconds)
	except subprocess.TimeoutExpired:
		end(p)
		try:  # a process of another group may keep the pipe open
			out, err = p.communicate(timeout=2)
		except subprocess.TimeoutExpired:
			out = err = ''
		raise Failed(f'{name}: no end after {seconds:.0f} s: {tail(err)}') from None
	except BaseException:
		end(p)
		raise
	if p.returncode not in ok:
		raise Failed(f'{name}: exit status {p.returncode}: {tail(err or out)}')
	return out, err


class Program:
	"""A program that reads commands as lines and answers each with a line of JSON; other lines are ignored."""

	def __init__(self, argv, env):
		self.name = ' '.join(os.path.basename(str(a)) for a in argv[-3:])
		self.log = tempfile.TemporaryFile()
		self.p = subprocess.Popen([str(a) for a in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=env,
			start_new_session=True)
		self.rest = b''

	def failed(self, what):
		self.log.seek(max(0, self.log.tell() - 4000))
		return Failed(f'{self.name}: {what}: {tail(self.log.read().decode(errors="replace"))}')

	def tell(self, words):
		try:
			self.p.stdin.write(words.encode() + b'\n')
			self.p.stdin.flush()
		except OSError:
			raise self.failed(f'ended early, with {self.p.poll()}') from None

	def answer(self, seconds=60):
		seconds *= PATIENCE
		deadline = time.monotonic() + seconds
		while True:
			line, separator, rest = self.rest.partition(b'\n')
			if separator:
				self.rest = rest
				if line.startswith(b'{'):
					return json.loads(line)
				continue
			if not select.select([self.p.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
				raise self.failed(f'no answer in {seconds:.0f} s')
			got = os.read(self.p.stdout.fileno(), 1 << 16)
			if not got:
				raise self.failed(f'ended early, with {self.p.wait(5)}')
			self.rest += got

	def end(self):
		try:
			self.p.stdin.close()
		except OSError:
			pass
		try:
			self.p.wait(15)
		except subprocess.TimeoutExpired:
			pass
		end(self.p)
		self.p.stdout.close()
		self.log.close()


# ---- the machine ----

class Testbed:
	"""A folder, the soft GPU if it is asked for, gbpfds and an MPS daemon. Use as a context manager."""

	def __init__(self, a):
		self.a, self.gbpfds, self.server, self.mps_env, self.shared_env = a, [], None, None, None
		if not a.gbpf or not os.access(a.gbpf, os.X_OK):
			sys.exit(f'no gbpf at {a.gbpf}: name an installed one with --gbpf')
		self.gbpf = os.path.abspath(a.gbpf)
		self.prefix = os.path.dirname(os.path.dirname(self.gbpf))
		self.shim, self.soft = f'{self.prefix}/lib/gbpf/shim', a.device == 'soft'
		self.dir = tempfile.mkdtemp(prefix='gbpf-gpu-')
		self.env = {**{k: v for k, v in os.environ.items() if k not in DROP}, MARK: self.dir, 'GBPF_CACHE_DIR': self.dir + '/cache'}
		self.begin = time.monotonic()
		signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

	def __enter__(self):
		try:
			if self.soft:
				self.start_soft()
			elif not self.a.libcuda:
				self.a.libcuda = next((d for d in DRIVERS if os.path.exists(d)), None)
		except BaseException:
			self.__exit__()
			raise
		return self

	def __exit__(self, *_):
		for d in list(self.gbpfds):
			d.stop()
		if self.mps_env and not self.soft:
			try:
				subprocess.run(['nvidia-cuda-mps-control'], input='quit\n', env=self.mps_env, text=True, timeout=20, check=False,
					stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
			except (OSError, subprocess.SubprocessError) as e:
				print(f'MPS does not stop: {e}', file=sys.stderr)
		if self.server:
			end(self.server)
		sweep(self.dir)
		shutil.rmtree(self.dir, ignore_errors=True)

	def start_soft(self):
		"""The soft GPU, whose library the programs without gBPF use, too."""
		self.a.libcuda = f'{self.prefix}/lib/gbpf/soft/libcuda.so.1'
		program = f'{self.prefix}/bin/gbpf-softgpu'
		self.env.update(GBPF_SOFTGPU=program, GBPF_SOFTGPU_SOCKET=f'{self.dir}/softgpu.sock', GBPF_RUNTIME_DIR=self.dir,
			GBPF_STATE_DIR=self.dir)
		r, w = os.pipe()
		gpus = str(getattr(self.a, 'soft_gpus', 1))
		self.server = subprocess.Popen([program, '--gpus', gpus, '--ready-fd', str(w)], pass_fds=[w], env=self.env, stdin=subprocess.DEVNULL,
			start_new_session=True)
		os.close(w)
		if not os.read(r, 1):
			raise Failed('the soft GPU did not start')
		os.close(r)

	def left(self):
		"""Returns the seconds until the limit."""
		return self.a.limit - (time.monotonic() - self.begin)

	def plain(self, **more):
		"""Returns the environment of a program without gBPF."""
		env = {**self.env, **more}
		if self.a.libcuda:
			env['LD_LIBRARY_PATH'] = os.path.dirname(self.a.libcuda) + ':' + env.get('LD_LIBRARY_PATH', '')
		return env

	def shimmed(self, **more):
		"""Returns the environment of a program under flip, which plays gbpfd."""
		folder = tempfile.mkdtemp(dir=self.dir)
		return {**self.env, 'GBPF_RUNTIME_DIR': folder, 'GBPF_STATE_DIR': folder, 'GBPF_REAL_CUDA': str(self.a.libcuda),
			'LD_LIBRARY_PATH': f'{self.shim}:' + self.env.get('LD_LIBRARY_PATH', ''), **more}

	def mps(self):
		"""Starts an MPS daemon, once; returns the variables of its clients. The soft GPU needs none. Raises Failed."""
		if not self.mps_env:
			self.shared_env = {'CUDA_MPS_PIPE_DIRECTORY': self.dir + '/mps', 'CUDA_MPS_LOG_DIRECTORY': self.dir + '/mps-log'}
			for path in self.shared_env.values():
				os.makedirs(path, exist_ok=True)
			self.mps_env = {**self.env, **self.shared_env}
			if not self.soft:
				# no pipes, which the daemon would keep open
				try:
					subprocess.run(['nvidia-cuda-mps-control', '-d'], env=self.mps_env, timeout=30, check=True, stdin=subprocess.DEVNULL,
						stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
				except (OSError, subprocess.SubprocessError) as e:
					self.mps_env = None
					raise Failed(f'MPS does not start: {e}') from None
		return self.shared_env

	def gbpfd(self, name, policy='auto'):
		d = Gbpfd(self, name, policy)
		self.gbpfds.append(d)
		d.start()
		return d


class Gbpfd:
	def __init__(self, testbed, name, policy):
		self.t, self.policy = testbed, policy
		self.folder = f'{testbed.dir}/{name}'
		os.makedirs(self.folder, exist_ok=True)
		self.env = {**testbed.env, 'GBPF_RUNTIME_DIR': self.folder, 'GBPF_STATE_DIR': self.folder + '/state'}

	def start(self):
		run([*self.under(), 'true'], self.env, 60)  # gbpf run starts gbpfd
		self.load(None if self.policy == 'none' else self.policy)

	def load(self, policy):
		"""Makes a policy active, also an example by its name alone; None: no policy is."""
		if os.path.exists(f'{self.t.prefix}/lib/gbpf/policies/examples/{policy}.bpf.o'):
			policy = f'examples/{policy}'
		run([self.t.gbpf, 'policy', *(['swap', policy] if policy else ['unload'])], self.env, 30 * PATIENCE)

	def set(self, variable, value):
		"""Sets a variable of the active policy."""
		run([self.t.gbpf, 'map', 'set', variable, value], self.env, 30 * PATIENCE)

	def switch(self, on):
		"""Switches gBPF on or off for the programs under this gbpfd."""
		run([self.t.gbpf, 'on' if on else 'off'], self.env, 30 * PATIENCE)

	def under(self, *options):
		"""Returns the command that puts a program under gBPF."""
		return [self.t.gbpf, 'run', '--device', self.t.a.device, *options, '--']

	def ask(self, *words):
		"""Returns the document of a verb, or {} if gbpfd does not answer."""
		try:
			return json.loads(run([self.t.gbpf, '--json', *words], self.env, 20)[0])
		except (Failed, ValueError):
			return {}

	def tenants(self):
		return self.ask('ps').get('tenants', [])

	def await_tenant(self, class_name, program):
		"""Waits until gbpfd has given a program of that class its lane, or the program has ended; raises Failed after the limit."""
		try:
			eventually(lambda: program.p.poll() is not None or any(t.get('class') == class_name for t in self.tenants()))
		except TimeoutError as e:
			raise Failed(f'no program of class {class_name} has reached gbpfd: {e}') from None

	def pid(self):
		"""Returns gbpfd's process id, from its lock file's owner in /proc; None: it is not found."""
		for path in pathlib.Path('/proc').glob('[0-9]*/environ'):
			try:
				if os.path.basename(os.readlink(path.parent / 'exe')) == 'gbpfd' and \
						f'GBPF_RUNTIME_DIR={self.folder}'.encode() in path.read_bytes().split(b'\0'):
					return int(path.parent.name)
			except OSError:
				pass
		return None

	def stop(self):
		if self in self.t.gbpfds:
			self.t.gbpfds.remove(self)
		try:
			run([self.t.gbpf, 'shutdown'], self.env, 30 * PATIENCE, ok=range(256))
		except Failed as e:
			print(e, file=sys.stderr)


def latency_ns(gbpfd):
	"""Returns the GPU time of its latency programs in ns, by its statistics; 0: there is no gbpfd, or it lists none."""
	return sum(t['stats']['busy_ns'] for t in gbpfd.tenants() if t.get('class') == 'latency' and 'stats' in t) if gbpfd else 0


# ---- the report ----

class Report:
	"""Rows of results, each printed and written at once, by any thread. A row is a dictionary; its `state` is ok, MISSED (a goal), FAILED,
	skipped, or absent (the machine has no such device)."""

	def __init__(self, a, name):
		self.path, self.name, self.rows = a.json, name, []
		self.begin, self.lock = time.monotonic(), threading.Lock()

	def add(self, line, **row):
		with self.lock:
			self.rows.append(row)
			print(line + ('' if row.get('state', 'ok') == 'ok' else f'  {row["state"]}'), flush=True)
			self.write()

	def failed(self, label, why, state='FAILED', **row):
		self.add(f'{label}: {why}', **{'what': label, **row, 'why': str(why), 'state': state})

	def write(self):
		if self.path:
			with open(self.path + '.new', 'w', encoding='utf-8') as f:
				json.dump({'script': self.name, 'seconds': time.monotonic() - self.begin, 'rows': self.rows}, f, indent=1)
			os.replace(self.path + '.new', self.path)

	def status(self):
		"""Prints a last line; returns the exit status: 1 if something failed or was not run; missed goals are figures, not faults."""
		count = {s: sum(r.get('state', 'ok') == s for r in self.rows) for s in ('ok', 'MISSED', 'FAILED', 'skipped', 'absent')}
		print(f'{self.name}: ' + ', '.join(f'{n} {s}' for s, n in count.items() if n) + f', {time.monotonic() - self.begin:.0f} s')
		self.write()
		return 1 if count['FAILED'] or count['skipped'] or not self.rows else 0
