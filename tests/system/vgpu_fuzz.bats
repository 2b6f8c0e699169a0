#!/usr/bin/env bats
# Random operations on every path that takes device memory, in a vGPU, against a model (vgpu_fuzz.c). Long by hand:
#   GBPF_FUZZ_SECONDS=600 GBPF_FUZZ_SEED=7 bats tests/system/vgpu_fuzz.bats

load helpers
load vgpu_helpers

FUZZ=${GBPF_BUILD:-build}/tests/system/vgpu_fuzz
SECONDS_EACH=${GBPF_FUZZ_SECONDS:-3}
SEED=${GBPF_FUZZ_SEED:-1}

OPTIONS= # of gbpf run, several words

fuzz() { # PROCESSES THREADS KILLS [lone]: sets output
	# shellcheck disable=SC2086
	timeout $((SECONDS_EACH + 300)) gbpf run --device soft --mem 192M $OPTIONS -- "$FUZZ" "$SEED" "$SECONDS_EACH" "$@" 3>&-
}

within_limit() { # gbpf ps, whose figure is not cut off at the limit; prints how many processes have one
	gbpf --json ps | python3 -c ' # settled: it holds at every moment
import json, sys
limited = [t for t in json.load(sys.stdin)["tenants"] if t.get("mem_limit")]
for t in limited:
    assert t["mem_vgpu_used"] <= t["mem_limit"], t
print(len(limited))'
}

@test "one thread: what is charged equals the model, and each refusal has a reason" {
	start_all
	run fuzz 1 1 0
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "several processes and threads: what is charged equals the model" {
	start_all
	run fuzz 3 3 0
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "processes with one context, and memory outside pools: what is charged equals the model" {
	start_all
	run fuzz 2 3 0 lone
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "one thread with one context: what is charged equals the model, and each refusal has a reason" {
	start_all
	run fuzz 1 1 0 lone
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "calls that wait, with a reservation: what is charged equals the model" {
	start_all
	OPTIONS="--reserve 64M --wait 2ms"
	run fuzz 3 3 0
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "killed processes: the account equals the model of the others, and stays within the limit" {
	local looks=0 seen SECONDS_EACH=$((SECONDS_EACH > 10 ? SECONDS_EACH : 10)) # a look may take seconds
	start_all
	fuzz 3 2 1000000 >"$GBPF_RUNTIME_DIR/fuzz.log" 2>&1 &
	pids+=($!)
	while kill -0 "${pids[-1]}" 2>/dev/null; do
		seen=$(within_limit)
		looks=$((looks + seen))
	done
	cat "$GBPF_RUNTIME_DIR/fuzz.log"
	wait "${pids[-1]}"
	[ "$looks" -gt 0 ]
}

@test "gbpfd is killed and started again under it: the account equals the model" {
	local restarts=0 log
	start_all
	log=$GBPF_RUNTIME_DIR/fuzz.log
	fuzz 2 2 1000000 >"$log" 2>&1 &
	local fuzzer=$!
	pids+=("$fuzzer")
	joined() { [ "$(gbpf --json ps | grep -o '"pid"' | wc -l)" -ge 2 ] || ! kill -0 "$fuzzer" 2>/dev/null; }
	while kill -0 "$fuzzer" 2>/dev/null; do
		eventually joined
		kill_daemon
		start_daemon
		daemon=${pids[-1]}
		restarts=$((restarts + 1))
	done
	cat "$log"
	wait "$fuzzer"
	[ "$restarts" -gt 0 ]
}
