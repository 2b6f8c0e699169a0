#!/usr/bin/env bats
# A watch with real requests on the soft GPU.

load helpers

@test "a swap that makes requests slow takes itself back" {
	start_soft
	start_daemon
	gbpf policy swap lc_first
	gbpf run --device soft --class batch -- "$SAMPLES/batch" --iterations 2000 --seconds 1000 >/dev/null 2>&1 3>&- &
	pids+=($!)
	gbpf run --device soft --class latency -- "$SAMPLES/lcserve" --rate 20 --requests 100000 >/dev/null 2>&1 3>&- &
	pids+=($!)
	eventually shows 'sum(t["stats"]["requests"] for t in d["tenants"] if t["class"] == "latency") >= 30' gbpf ps
	good=$(eventually gets '[t["stats"]["request_p50_ns"] // 1000 for t in d["tenants"] if t["class"] == "latency"][0]' gbpf ps)
	echo "P50 under lc_first: $good us"
	[ "$good" -gt 0 ]
	run timeout 200 gbpf policy swap "${GBPF_BUILD:-build}/policies/lc_last.bpf.o" --watch 50s \
		--rollback-if "p50[class=latency]>$((2 * good))us or held[class=latency]>30%"
	echo "$output"
	[ "$status" -eq 9 ]
	[[ "$output" == *"rolled back"*"[class=latency]"* ]]
	gbpf events | grep -q "'lc_last' version .* is rolled back to .* that took [0-9]* us"
	gbpf --json policy list | python3 -c '
import json, sys
d = json.load(sys.stdin)
assert [v["name"] for v in d["versions"] if v["state"] == "active"] == ["lc_first"], d'
}

@test "gbpfd killed between the state and the flip starts with the new version and its watch" {
	gbpfd_points=${GBPF_BUILD:-build}/tests/system/gbpfd-points
	[ -x "$gbpfd_points" ] || skip "$gbpfd_points does not exist"
	export GBPF_LIBDIR="$GBPF_PREFIX/lib/gbpf"
	mkdir -p -m 700 "$GBPF_STATE_DIR"
	GBPF_POINT=daemon.durable.written:kill "$gbpfd_points" --foreground --device soft >"$GBPF_RUNTIME_DIR/points.log" 2>&1 3>&- &
	pids+=($!)
	eventually serves "${pids[0]}" "$GBPF_RUNTIME_DIR/control.sock"
	run gbpf policy swap lc_first --watch 1h --rollback-if 'launches>=1' --detach
	[ "$status" -ne 0 ]
	status=0
	wait "${pids[0]}" || status=$?
	[ "$status" -eq 137 ]
	rm -f "$GBPF_RUNTIME_DIR/control.sock" # start_daemon waits for it
	start_soft
	start_daemon
	gbpf --json policy watch | python3 -c '
import json, sys
d = json.load(sys.stdin)
assert (d["name"], d["state"], d["resumed"]) == ("lc_first", "watching", True), d'
	gbpf run --device soft -- "$SAMPLES/kernels" vecadd
	rolled_back() { gbpf events | grep -q "'lc_first' version .* is rolled back"; }
	eventually rolled_back
}
