#!/usr/bin/env bats
# The main job, end to end, on the soft GPU.

load helpers

@test "the twelve kernels are right on the soft GPU without gBPF" {
	start_soft
	run env LD_LIBRARY_PATH="$GBPF_PREFIX/lib/gbpf/soft" "$SAMPLES/kernels"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c ' ok ' <<<"$output")" -eq 12 ]
}

@test "the twelve kernels are right under gbpf run with each policy" {
	start_soft
	start_daemon
	for policy in fifo fair lc_first; do
		gbpf policy swap "$policy"
		for class in latency normal batch; do
			run gbpf run --device soft --class "$class" -- "$SAMPLES/kernels"
			echo "$policy $class: $output"
			[ "$status" -eq 0 ]
			[ "$(grep -c ' ok ' <<<"$output")" -eq 12 ]
		done
	done
}

@test "the demonstration ends with right results and both policies' latencies" {
	mkdir "$GBPF_RUNTIME_DIR/tmp"
	export TMPDIR=$GBPF_RUNTIME_DIR/tmp # where it keeps what it starts with
	run --separate-stderr "$GBPF_PREFIX/lib/gbpf/demo" --device soft --requests 40 --out "$GBPF_RUNTIME_DIR" --json
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	python3 -c 'import json, sys
sys.exit(not 0 < json.loads(sys.argv[1])["p99_lc_first_over_fair"])' "$output"
	run ls "$TMPDIR"
	[ -z "$output" ]
	for f in /proc/[0-9]*/environ; do
		if grep -qszF "GBPF_RUNTIME_DIR=$TMPDIR/" "$f"; then
			echo "left running: $(tr '\0' ' ' <"${f%environ}cmdline")"
			return 1
		fi
	done
}

# measure_under POLICY NAME: sets p50 to that of lcserve, in microseconds, and held to the time for which its launches were held, together
# with a saturating batch program.
measure_under() {
	local batch service
	gbpf policy swap "$1"
	gbpf run --device soft --class batch -- "$SAMPLES/batch" --iterations 2000 >/dev/null 2>&1 3>&- &
	batch=$!
	gbpf run --device soft --class latency --name "$2" -- "$SAMPLES/lcserve" --requests 100000 --rate 10 >"$GBPF_RUNTIME_DIR/$2.out" 3>&- &
	service=$!
	pids+=("$batch" "$service")
	read -r held < <(eventually gets "[[t['stats']['held_ns']] for t in d['tenants'] if t['name'] == '$2' and t['stats']['requests'] >= 30][0]" gbpf ps)
	kill "$batch" "$service"
	wait "$batch" || true
	wait "$service" || true
	p50=$(sed -n 's/.*P50 \([0-9]*\) us.*wrong 0$/\1/p' "$GBPF_RUNTIME_DIR/$2.out")
}

@test "a policy with inverted verdicts inverts the latencies" {
	start_soft
	start_daemon
	measure_under lc_first first
	echo "lc_first: P50 $p50 us, held for $held ns"
	[ "$p50" -gt 0 ]
	[ "$held" -eq 0 ]
	measure_under "${GBPF_BUILD:-build}/policies/lc_last.bpf.o" last
	echo "lc_last: P50 $p50 us, held for $held ns"
	[ "$p50" -ge 5000 ] # for which it holds each launch
}

@test "kills of programs, gbpfd and the device leave the rest right" {
	run env GBPF_PREFIX="$GBPF_PREFIX" tools/kill-test --kills 5 --seed 7
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "a refused policy leaves the old one running" {
	start_daemon
	gbpf policy swap lc_first
	head -c 900 "$POLICIES/fair.bpf.o" >"$GBPF_RUNTIME_DIR/cut.bpf.o"
	run gbpf policy swap "$GBPF_RUNTIME_DIR/cut.bpf.o"
	echo "$output"
	[ "$status" -eq 1 ] || [ "$status" -eq 4 ]
	[[ "$output" == *cut* ]]
	gbpf --json policy list | python3 -c '
import json, sys
d = json.load(sys.stdin)
assert [v["name"] for v in d["versions"] if v["state"] == "active"] == ["lc_first"], d'
}
