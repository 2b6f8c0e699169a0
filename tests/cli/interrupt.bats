# Interrupted verbs: they end by the signal, say what goes on without them, and leave nothing behind.
load helper

# start COMMAND...: in a session of its own, so that a signal can go to its process group as from a terminal's ^C; sets $pid. A
# shell's background job would ignore SIGINT. The file ended gets its exit status, negative: the signal that has ended it, which the
# shell's $? does not distinguish from an exit status.
start() {
	rm -f started ended
	TMPDIR=$cli_dir/tmp python3 -c 'import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
p = subprocess.Popen(sys.argv[1:], start_new_session=True)
print(p.pid, file=open("started", "w"))
status = p.wait()
print(status, file=open("ended", "w"))' "$@" >out 2>err </dev/null &
	waiter=$!
	eventually test -s started
	pid=$(<started)
}

finished() {
	wait "$waiter"
	[ -s ended ]
}

# ended_by NUMBER: waits for $pid, which the signal ended.
ended_by() {
	finished
	[ "$(<ended)" -eq "-$1" ]
}

nothing_left() { ! grep -lsz "^TMPDIR=$cli_dir/tmp" /proc/[0-9]*/environ >/dev/null && [ -z "$(ls tmp)" ]; }
measuring() { pgrep -P "$pid" -f ^bench- >/dev/null; }
with_folder() { measuring && [ -n "$(ls tmp)" ]; }

# interrupts STATE BENCH [OPTION]...: in that state, by ^C in the terminal and by kill.
interrupts() {
	local state=$1 name
	shift
	name="$*"
	name="bench ${name%% --*}"
	mkdir -p tmp
	start "$GBPF" bench "$@"
	eventually "$state"
	kill -INT -- "-$pid"
	ended_by 2
	[ "$(tail -n 1 err)" = "gbpf: $name: interrupted" ]
	eventually nothing_left
	start "$GBPF" --json bench "$@"
	eventually "$state"
	kill -TERM "$pid"
	ended_by 15
	grep -q '"message": "'"$name"': interrupted"' out
	run ! grep -q Traceback out err
	eventually nothing_left
}

@test "an interrupted bench dev hook, policy or soft ends by the signal" {
	interrupts measuring dev hook --repeat 1000
	interrupts measuring dev policy --ms 1000 --repeat 1000
	interrupts with_folder dev soft --ms 100000
}

@test "an interrupted bench latency, preempt, dev swap or disb ends by the signal, with its processes and folder" {
	interrupts with_folder latency --device soft --n 10000000
	interrupts with_folder dev swap --swaps 10000
	interrupts with_folder preempt --device soft
	interrupts with_folder dev disb --device soft
}

@test "an interrupted bench memory, dev pace, tenants, copy or reach ends by the signal, with its processes and folder" {
	interrupts with_folder dev pace --device soft
	interrupts with_folder dev tenants --device soft
	interrupts with_folder memory --device soft
	interrupts with_folder dev copy --device soft
	printf '#!/bin/sh\nexec sleep 1000\n' >python
	chmod +x python
	interrupts with_folder dev reach --device soft --parts ptx --python "$PWD/python"
}

@test "doctor leaves nothing behind, interrupted or not" {
	mkdir tmp
	start "$GBPF" doctor --device soft
	finished
	eventually nothing_left
	[ -z "$(ls -A "$GBPF_RUNTIME_DIR" "$GBPF_STATE_DIR" | grep -v -e : -e '^$')" ]
	start "$GBPF" doctor --device soft
	eventually eval '[ -n "$(ls tmp)" ] || [ -s ended ]'
	kill -INT -- "-$pid" 2>/dev/null || true # it may have ended by itself
	finished
	eventually nothing_left
}

@test "an interrupted swap --watch says that gbpfd continues to monitor" {
	"$GBPF" run --device soft true
	"$GBPF" policy load fifo
	start "$GBPF" policy swap fair --watch 1h --rollback-if 'held>99%'
	eventually grep -q swapped out
	kill -INT "$pid"
	ended_by 2
	grep -q '^gbpf: policy swap: interrupted; gbpfd continues to monitor version [0-9]* for 3[56][0-9][0-9] s' err
	grep -q 'gbpf policy watch' err
	"$GBPF" policy unload
	"$GBPF" events | grep -q "watch  *the watch of 'fair' version [0-9]* ends: it was unloaded"
}

@test "the interrupted demonstration ends by the signal, with what it started" {
	mkdir tmp
	start "$GBPF_PREFIX/lib/gbpf/demo" --device soft --out .
	eventually eval '[ -S "$(echo tmp/gbpf-demo-*/control.sock)" ]'
	kill -INT -- "-$pid"
	ended_by 2
	[ "$(tail -n 1 err)" = "demo: interrupted" ]
	run ! grep -q Traceback err
	eventually nothing_left
}

@test "the demonstration that is interrupted while a program starts leaves nothing behind" {
	mkdir tmp
	cat >demo.py <<'PYTHON'
import importlib.machinery, importlib.util, os, signal, subprocess, sys
number = int(sys.argv.pop(1))
loader = importlib.machinery.SourceFileLoader('demo', sys.argv[1])
demo = importlib.util.module_from_spec(importlib.util.spec_from_loader('demo', loader))
sys.dont_write_bytecode = True
loader.exec_module(demo)
popen = subprocess.Popen
def start(*args, **options):
	global number
	p = popen(*args, **options)
	number -= 1
	if not number:
		os.kill(os.getpid(), signal.SIGINT)
	return p
subprocess.Popen = start
sys.argv = sys.argv[1:]
sys.exit(demo.main())
PYTHON
	for number in 1 2 3; do # gbpf-softgpu, gbpfd, a program
		start python3 demo.py "$number" "$GBPF_PREFIX/lib/gbpf/demo" --device soft --out .
		ended_by 2
		[ "$(tail -n 1 err)" = "demo: interrupted" ]
		run ! grep -q Traceback err
		eventually nothing_left
	done
}

@test "the demonstration prints no share above what there is" {
	python3 - "$GBPF_PREFIX/lib/gbpf/demo" <<'PYTHON'
import importlib.machinery, importlib.util, sys
loader = importlib.machinery.SourceFileLoader('demo', sys.argv[1])
demo = importlib.util.module_from_spec(importlib.util.spec_from_loader('demo', loader))
sys.dont_write_bytecode = True
loader.exec_module(demo)
phase = lambda rate, busy: {'batch_per_s': rate, 'lc_busy': busy}
assert demo.of_left(phase(90.0, 0.1), 100.0) == 1.0
assert demo.of_alone(phase(300.0, 0.0), 100.0) is None and demo.of_left(phase(300.0, 0.0), 100.0) is None
assert demo.of_left(phase(62.0, 0.99), 100.0) is None
assert demo.percent(None) == '-'
PYTHON
}
