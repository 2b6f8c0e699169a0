#!/usr/bin/env bats
# Malicious tenants (hostile.py) run together with a batch and a latency program on the soft GPU. Both programs keep running with
# correct results, at worst slower during the attack, and gbpfd keeps answering.

load helpers
load vgpu_helpers

victims() {
	start_soft
	start_daemon --policy "$POLICIES/$1.bpf.o"
	gbpf run --device soft --class batch --name victim -- "$SAMPLES/batch" --kernel-us 1000 --blocks 64 --log "$GBPF_RUNTIME_DIR/log" \
		>"$GBPF_RUNTIME_DIR/batch.out" 2>&1 3>&- &
	pids+=($!)
	batch=$!
	progress 1
}

# attack NAME ...: starts all attacks at once; they run until they are killed.
attack() {
	local a
	attackers=()
	for a in "$@"; do
		python3 "$BATS_TEST_DIRNAME/hostile.py" "$a" >"$GBPF_RUNTIME_DIR/$a.out" 2>&1 3>&- &
		pids+=($!)
		attackers+=($!)
	done
	for a in "$@"; do
		eventually grep -q ready "$GBPF_RUNTIME_DIR/$a.out" || { cat "$GBPF_RUNTIME_DIR/$a.out"; return 1; }
	done
}

kernels() { wc -l <"$GBPF_RUNTIME_DIR/log"; }
reached() { [ -s "$GBPF_RUNTIME_DIR/log" ] && [ "$(kernels)" -ge "$1" ]; }
progress() { eventually reached $(($(kernels 2>/dev/null || echo 0) + $1)); }

# During the attack and after it.
others_go_on() {
	local a
	progress 5
	timeout 240 gbpf run --device soft --class latency -- "$SAMPLES/lcserve" --rate 20 --requests 10 >"$GBPF_RUNTIME_DIR/web.out"
	grep -q 'wrong 0$' "$GBPF_RUNTIME_DIR/web.out"
	for a in "ps --why" status device "policy show" "map list" events; do
		timeout "$EVENTUALLY_SECONDS" gbpf $a >"$GBPF_RUNTIME_DIR/answer"
	done
	for a in "${attackers[@]}"; do
		kill -0 "$a" || { tail -n 5 "$GBPF_RUNTIME_DIR"/*.out; return 1; } # it exits with an error of its own only
		kill -9 "$a"
		wait "$a" 2>/dev/null || true
	done
	progress 20
	timeout 240 gbpf run --device soft --class latency -- "$SAMPLES/lcserve" --rate 20 --requests 10 >"$GBPF_RUNTIME_DIR/web.out"
	grep -q 'wrong 0$' "$GBPF_RUNTIME_DIR/web.out"
	[ "$(gbpf --json status | python3 -c 'import json, sys; print(json.load(sys.stdin)["leaked"])')" = 0 ]
	kill -TERM "$batch"
	wait "$batch" || true
	grep -q 'wrong 0$' "$GBPF_RUNTIME_DIR/batch.out"
}

@test "leases and seals on other tenants' pages block no tenant for good" {
	victims lc_first
	attack leases stale seals
	others_go_on
}

@test "a board that lies holds others to the limit, and no longer" {
	victims lc_first
	attack liar promises
	others_go_on
}

# Kernels of the victim that went although the policy held them.
forced() { eventually gets '[t["stats"]["limit_hits"] for t in d["tenants"] if t["name"] == "victim"]' gbpf ps; }
demoted() { gbpf events | grep -q "$1 (user 65534) shows open requests but does no work"; }

# An open request without work costs others less than a second, then 7 % of the time; without that, each kernel would be forced.
open_without_work() {
	local before
	victims "$1"
	chmod 755 "$GBPF_RUNTIME_DIR"
	attack "$2"
	eventually demoted "$2"
	progress 5
	before=$(forced)
	progress 100
	[ $(($(forced) - before)) -lt 50 ]
	others_go_on
}

@test "an open request without work on the GPU loses its effect" {
	[ "$(id -u)" = 0 ] || [ -n "$CI" ] || skip "needs root to be two users"
	open_without_work lc_first idle
}

@test "nor does it gain any by coming back again and again" {
	[ "$(id -u)" = 0 ] || [ -n "$CI" ] || skip "needs root to be two users"
	open_without_work examples/gpreempt reborn
}

@test "nor with policy auto" {
	[ "$(id -u)" = 0 ] || [ -n "$CI" ] || skip "needs root to be two users"
	open_without_work auto idle
}

@test "a request that is announced all the time without work loses its effect too" {
	[ "$(id -u)" = 0 ] || [ -n "$CI" ] || skip "needs root to be two users"
	open_without_work auto herald
}

# As from a page that stays mapped when its owner's board was withdrawn. Without the budget each kernel would wait for 0.2 s.
@test "leases without an open request lose their effect" {
	[ "$(id -u)" = 0 ] || [ -n "$CI" ] || skip "needs root to be two users"
	victims auto
	chmod 755 "$GBPF_RUNTIME_DIR"
	attack keeper
	doubted() { gbpf events | grep -q 'leases are ignored for 10 s'; }
	eventually doubted
	others_go_on
}

@test "pages full of nonsense, and those of others as one's own" {
	victims auto
	attack nonsense borrowed
	others_go_on
}

@test "wrong messages, wrong descriptors, gigabytes, and no answer at all" {
	victims fair
	HOSTILE_BYTES=$((64 << 20)) attack messages mute gigabytes
	gbpf policy swap lc_first
	others_go_on
}

# What is reserved is there all the time, and a program that is told to wait is answered.
@test "accounts full of nonsense, wrong sizes, and questions without end" {
	local i
	[ "$(id -u)" = 0 ] || [ -n "$CI" ] || skip "needs root to be two users"
	victims fair
	chmod 755 "$GBPF_RUNTIME_DIR"
	gbpf vgpu create kept --mem 300M --reserve 200M --wait 50ms
	start_servers_with "--vgpu kept" kept
	attack claims
	for i in 1 2 3; do
		expect ok kept alloc 200
		expect CUDA_ERROR_OUT_OF_MEMORY kept alloc 200
		expect ok kept free
	done
	timeout "$EVENTUALLY_SECONDS" gbpf --json vgpu ls >"$GBPF_RUNTIME_DIR/answer" # settled: only that gbpfd answers counts
	others_go_on
}

@test "boards and pages that come and go all the time" {
	victims lc_first
	attack offers churn
	others_go_on
}

@test "a tenant that ignores boards and leases is stopped by hardware control" {
	victims examples/gpreempt
	attack deaf
	timeout 240 gbpf run --device soft --class latency --name web -- "$SAMPLES/lcserve" --rate 10 --requests 2 --kernels 1 --blocks 1 \
		--iterations 20000000 >"$GBPF_RUNTIME_DIR/web.out"
	grep -q 'wrong 0$' "$GBPF_RUNTIME_DIR/web.out"
	gbpf events | grep -q 'deaf is stopped (slice): web has waited'
	others_go_on
}

# One announcement every few microseconds, for now or for any time, without a request.
@test "a tenant that hints all the time and submits nothing is ignored" {
	victims examples/gpreempt
	cat >"$GBPF_RUNTIME_DIR/hints.py" <<-'PY'
		import ctypes, os, random, time
		cuda, p, rnd = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), random.Random(1)
		def call(name, *a): assert getattr(cuda, name)(*a) == 0, name
		call("cuInit", 0)
		call("cuDevicePrimaryCtxRetain", ctypes.byref(p), 0)
		call("cuCtxSetCurrent", p)
		answers = {}
		print("ready", os.getpid(), flush=True)
		parent = os.getppid()
		while os.getppid() == parent:
		    ahead = rnd.choice((0, 0, 0, 1, 100, 10**7, 10**7 + 1, 2**63, 2**64 - 1))
		    a = cuda.gbpf_shim_hint(ctypes.c_uint64(ahead), ctypes.c_uint64(rnd.choice((0, 1, 2**64 - 1))), ctypes.c_int(-1))
		    answers[a] = answers.get(a, 0) + 1
		    if sum(answers.values()) % 10000 == 0:
		        print(answers, flush=True)
	PY
	attackers=()
	gbpf run --device soft --class latency --name hints -- python3 "$GBPF_RUNTIME_DIR/hints.py" >"$GBPF_RUNTIME_DIR/hints.out" 2>&1 3>&- &
	pids+=($!)
	eventually grep -q ready "$GBPF_RUNTIME_DIR/hints.out"
	attackers+=("$(sed -n 's/^ready //p' "$GBPF_RUNTIME_DIR/hints.out")") # gbpf run is its parent
	muted() { gbpf events | grep -q 'announcements are ignored for 1 s' && grep -q -- '-11: ' "$GBPF_RUNTIME_DIR/hints.out"; }
	eventually muted
	others_go_on
}

@test "gbpfd is killed again and again amid all of it" {
	victims lc_first
	attack leases liar borrowed nonsense
	for _ in 1 2 3; do
		progress 3
		kill -9 "${gbpfd:=${pids[1]}}"
		wait "$gbpfd" || true
		rm -f "$GBPF_RUNTIME_DIR/control.sock"
		start_daemon
		gbpfd=${pids[-1]}
	done
	others_go_on
}
