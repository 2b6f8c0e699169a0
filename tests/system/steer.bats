#!/usr/bin/env bats
# Hardware control of programs on the soft GPU: lanes, time slices, suspension, and their state after gbpfd dies.

load helpers

load_steer() {
	start_soft
	start_daemon --policy "${GBPF_BUILD:-build}/tests/unit/daemon/steer.bpf.o"
	daemon=${pids[-1]}
}

batch() {
	gbpf run --device soft --class batch "$@" >"$GBPF_RUNTIME_DIR/batch.out" 2>&1 3>&- &
	pids+=($!)
}

# Prints the time slice in microseconds of the only program's context, or 0 without a context.
slice() { gbpf --json device --soft | python3 -c '
import json, sys
print(max([c["slice_us"] for c in json.load(sys.stdin)["contexts"]], default=0))'; }

slice_is() { [ "$(slice)" = "$1" ]; }
slice_is_not() { [ "$(slice)" != "$1" ]; }
await_start() { eventually test -s "$1"; }

@test "slices by admit and by tick reach the device, and end with the policy" {
	load_steer
	batch --weight 100 -- "$SAMPLES/batch" --iterations 2000 --seconds 1000
	eventually slice_is 300
	gbpf set --weight 14 "$(eventually gets 'd["tenants"][0]["pid"]' gbpf ps)"
	eventually slice_is 400
	eventually prints 'time slice: 400[.0]* µs' gbpf ps --why
	gbpf policy swap fifo
	eventually slice_is_not 400
	[ "$(slice)" -gt 400 ]
}

# The policy runs a millisecond after a request has opened, unless a message triggers it earlier.
@test "a latency tenant reports its requests to gbpfd while the policy wants that" {
	load_steer
	batch --weight 17 -- "$SAMPLES/batch" --iterations 2000 --seconds 1000
	gbpf run --device soft --class latency -- "$SAMPLES/lcserve" --requests 100000 --rate 20 --kernels 3 --blocks 4 \
		--iterations 20000 >/dev/null 2>&1 3>&- &
	pids+=($!)
	eventually shows 'd["counters"]["notes"][4] >= 3' gbpf policy show
}

# kill_while_off LOG PID: kills gbpfd with that pid while the program with that log is suspended, and prints the ms until it runs.
kill_while_off() {
	PYTHONPATH=$BATS_TEST_DIRNAME/.. python3 - "$@" <<-'PY'
		import os, signal, sys, time
		from eventually import eventually
		log, pid = sys.argv[1], int(sys.argv[2])
		def stamps():
		    return [float(w[0]) for w in (l.split() for l in open(log)) if len(w) == 2]
		def now():
		    return time.clock_gettime(time.CLOCK_MONOTONIC)
		# A pause of 20 ms shows that the program is suspended: otherwise it logs a kernel every few milliseconds. It is
		# resumed for 2 ms after 100 ms.
		eventually(lambda: now() - (stamps() or [now()])[-1] >= 0.020, 'a pause', poll_seconds=0.001)
		killed = now()
		os.kill(pid, signal.SIGKILL)
		later = eventually(lambda: [s for s in stamps() if s > killed], 'a kernel after the kill', poll_seconds=0.001)
		print(int(1000 * (later[0] - killed)))
	PY
}

# has_grown LOG LINES: the program with that log has executed kernels since it had that number of lines.
has_grown() { [ "$(wc -l <"$1")" -gt "$2" ]; }
was_stopped() { gbpf events | grep -q "is stopped (off)"; }

@test "a tenant that is switched off runs again when gbpfd is killed" {
	local ms lc
	load_steer
	batch --weight 12 -- "$SAMPLES/batch" --iterations 200 --seconds 1000 --log "$GBPF_RUNTIME_DIR/log"
	await_start "$GBPF_RUNTIME_DIR/log"
	gbpf run --device soft --class latency -- "$SAMPLES/lcserve" --requests 1 --rate 10 --kernels 1 --blocks 1 \
		--iterations 100000000 >/dev/null 2>&1 3>&- &
	lc=$!
	pids+=("$lc")
	eventually was_stopped
	ms=$(kill_while_off "$GBPF_RUNTIME_DIR/log" "$daemon")
	echo "runs again after $ms ms"
	pkill -KILL -P "$lc"
	run sed -n '/wrong [1-9]/p' "$GBPF_RUNTIME_DIR/batch.out"
	[ -z "$output" ]
}

# The policy suspends the program except for 2 ms in every 100. The socket's name is taken away, so that gbpfd cannot reach the
# soft GPU at its next change; if that comes within the 2 ms, the program runs from then on.
@test "a tenant that could not be switched on is tried again" {
	local socket=$GBPF_RUNTIME_DIR/softgpu.sock log=$GBPF_RUNTIME_DIR/log before
	load_steer
	batch -- "$SAMPLES/batch" --iterations 200 --seconds 1000 --log "$log"
	await_start "$log"
	gbpf set --weight 15 "$(eventually gets 'd["tenants"][0]["pid"]' gbpf ps)"
	eventually shows 'd["counters"]["notes"][3] >= 1' gbpf policy show
	mv "$socket" "$socket.away"
	eventually prints 'cannot apply time slice or suspension' gbpf events
	gbpf policy swap fifo
	before=$(wc -l <"$log")
	mv "$socket.away" "$socket"
	eventually has_grown "$log" "$before"
}

@test "the preempt hook brings a request through a saturating program, which goes on afterwards" {
	load_steer
	batch --weight 12 -- "$SAMPLES/batch" --iterations 2000 --seconds 1000
	hog=${pids[-1]}
	await_start "$GBPF_RUNTIME_DIR/batch.out"
	gbpf run --device soft --class latency -- "$SAMPLES/lcserve" --requests 20 --rate 10 >"$GBPF_RUNTIME_DIR/lc.out"
	grep -q 'wrong 0$' "$GBPF_RUNTIME_DIR/lc.out"
	eventually was_stopped
	kill "$hog" # it ends by itself then, and says what was wrong
	wait "$hog"
	grep -q 'wrong 0$' "$GBPF_RUNTIME_DIR/batch.out"
}

@test "a policy can end a program, and nothing else does" {
	load_steer
	batch --weight 11 -- "$SAMPLES/batch" --iterations 2000 --seconds 1000
	hog=${pids[-1]}
	await_start "$GBPF_RUNTIME_DIR/batch.out"
	gbpf run --device soft --class latency -- "$SAMPLES/lcserve" --requests 5 --rate 10 >/dev/null
	run wait "$hog"
	[ "$status" -eq 137 ]
	eventually prints 'is ended: as the policy decided' gbpf events
}

# Returns whether a driver started with these options of run is a client of the shared lane.
in_shared_lane() { gbpf run --device soft "$@" -- python3 -c '
import ctypes
cuda, v = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(-1)
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGetAttribute(ctypes.byref(v), 133, 0) == 0 # CU_DEVICE_ATTRIBUTE_MPS_ENABLED
print(v.value)'; }

@test "the lane is the one that run asks for, and ps and device report it" {
	start_soft
	start_daemon
	[ "$(in_shared_lane)" = 0 ]
	[ "$(in_shared_lane --lane process)" = 0 ]
	[ "$(in_shared_lane --lane shared)" = 1 ]
	batch --lane shared -- "$SAMPLES/batch" --iterations 2000 --seconds 1000
	await_start "$GBPF_RUNTIME_DIR/batch.out"
	eventually prints ' shared ' gbpf ps
	run gbpf device
	[[ "$output" == *"lanes: process yes, shared yes"* ]]
}

@test "a share of the multiprocessors in the process lane is kept by the streams that can, and reported" {
	cat >"$GBPF_RUNTIME_DIR/half.bpf.c" <<-'C'
		#include <gbpf/gbpf.bpf.h>
		GBPF_LICENSE("Apache-2.0");
		SEC("gbpf/admit")
		int GBPF_PROG(half_admit, admit)
		{
			ctx->sm_percent = 50;
			return GBPF_ADMIT;
		}
		SEC("gbpf/queue_create")
		int GBPF_PROG(half_create, queue_create)
		{
			if (ctx->priority < 0)
				ctx->sm_percent = 100;
			return 0;
		}
	C
	clang-14 -target bpf -mcpu=v3 -g -O2 -I "$GBPF_PREFIX/include" -c "$GBPF_RUNTIME_DIR/half.bpf.c" \
		-o "$GBPF_RUNTIME_DIR/half.bpf.o"
	start_soft --sms 16
	start_daemon --policy "$GBPF_RUNTIME_DIR/half.bpf.o"
	cat >"$GBPF_RUNTIME_DIR/streams.py" <<-'PY'
		import ctypes, sys
		cuda, v, p = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(-1), ctypes.c_void_p()
		def call(name, *a): assert getattr(cuda, name)(*a) == 0, name
		call("cuInit", 0)
		call("cuDeviceGetAttribute", ctypes.byref(v), 16, 0) # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
		call("cuDevicePrimaryCtxRetain", ctypes.byref(p), 0)
		call("cuCtxSetCurrent", p)
		for flags, priority in ((1, 0), (1, 0), (1, -1), (0, 0)):
		    s = ctypes.c_void_p()
		    call("cuStreamCreateWithPriority", ctypes.byref(s), flags, priority)
		print(v.value, flush=True)
		sys.stdin.read()
	PY
	mkfifo "$GBPF_RUNTIME_DIR/end"
	gbpf run --device soft --class batch -- python3 "$GBPF_RUNTIME_DIR/streams.py" <"$GBPF_RUNTIME_DIR/end" \
		>"$GBPF_RUNTIME_DIR/batch.out" 2>&1 3>&- &
	pids+=($!)
	exec 9>"$GBPF_RUNTIME_DIR/end"
	await_start "$GBPF_RUNTIME_DIR/batch.out"
	[ "$(cat "$GBPF_RUNTIME_DIR/batch.out")" = 8 ]
	eventually prints 'share of the multiprocessors: 50 %, kept by 2 streams, not by 1 ordered with the default stream' gbpf ps --why
	eventually prints 'green context yes' gbpf device
	exec 9>&-
}

# profiles EXPRESSION: evaluates it over p, the profiles of batch programs that auto keeps.
profiles() { gbpf --json map dump profiles | python3 -c '
import json, sys
p = [e for e in json.load(sys.stdin)["entries"] if e["value"]["seen_ns"]]
print(eval(sys.argv[1]))' "$1"; }

profile_is_kept() { [ "$(profiles 'len(p)' 2>/dev/null)" = 1 ]; }

@test "auto gives a batch program that was held next to requests a part of the multiprocessors at its next start" {
	local one
	start_soft --sms 10
	start_daemon --policy auto
	gbpf run --device soft --class latency --lane shared -- "$SAMPLES/lcserve" --requests 100000 --rate 20 --kernels 3 --blocks 4 \
		--iterations 20000 >/dev/null 2>&1 3>&- &
	pids+=($!)
	eventually prints ' latency ' gbpf ps
	batch --lane shared -- "$SAMPLES/batch" --iterations 2000 --seconds 1000
	one=$!
	eventually profile_is_kept
	eventually shows 'not any("sm_percent" in t for t in d["tenants"])' gbpf ps
	gbpf map set profiles "$(profiles '"command=%d,uid=%d,gpu=0" % (p[0]["key"]["command"], p[0]["key"]["uid"])')" part=1
	eventually prints 'at its next start it has 70 % of the multiprocessors' gbpf ps --why
	kill "$one"
	wait "$one" || true
	batch --lane shared -- "$SAMPLES/batch" --iterations 2000 --seconds 1000
	eventually prints 'has 70 % of the multiprocessors, so that requests find others free' gbpf ps --why
	eventually prints '  share of the multiprocessors: 70 %$' gbpf ps --why
	eventually shows '[t["sm_percent"] for t in d["tenants"] if t["class"] == "batch"] == [70]' gbpf ps
	eventually shows 'not any("sm_percent" in t for t in d["tenants"] if t["class"] == "latency")' gbpf ps
}

@test "a child of a program in the shared lane may be in the process lane" {
	start_soft
	start_daemon
	cat >"$GBPF_RUNTIME_DIR/parent.py" <<-'PY'
		import ctypes, os, subprocess, sys
		cuda, v = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(-1)
		assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetAttribute(ctypes.byref(v), 133, 0) == 0
		pipe = ctypes.CDLL(None).getenv
		pipe.restype = ctypes.c_char_p
		print(v.value, os.path.basename((pipe(b"CUDA_MPS_PIPE_DIRECTORY") or b"none").decode()), flush=True)
		if len(sys.argv) > 1: # as a child that inherits the environment
		    os.environ["GBPF_LANE"] = "process"
		    subprocess.run([sys.executable, sys.argv[0]], check=True)
	PY
	run gbpf run --device soft --lane shared -- python3 "$GBPF_RUNTIME_DIR/parent.py" again
	echo "$output"
	[ "${lines[0]}" = "1 mps" ]
	[ "${lines[1]}" = "0 none" ]
}
