#!/usr/bin/env bats
# Costs of a tool and their limits: budgets, the blocks that run it while kernels run, and resident blocks.

load helpers
load talk

PROGRAM=probe_limits

# attach NAME [OPTION...]: sets $id.
attach() {
	id=$(gbpf probe attach "$BUILD/$1.bpf.o" --json "${@:2}" | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
}

# value MAP KEY: of the probe $id.
value() {
	gbpf map dump "$1" --probe "$id" --json | python3 -c '
import json, sys
print(*(e["value"] for e in json.load(sys.stdin)["entries"] if e["key"] == int(sys.argv[1])))' "$2"
}
is() { [ "$(value "$1" "$2")" = "$3" ]; }
shows() { wait_for is "$@"; }

# holds EXPRESSION: of the probe $id as p.
holds() {
	gbpf probe ls --json | python3 -c '
import json, sys
p = next(p for p in json.load(sys.stdin)["probes"] if p["id"] == int(sys.argv[2]))
sys.exit(not eval(sys.argv[1]))' "$1" "$id"
}

@test "a tool without a budget runs in each launch" {
	begin
	attach count_calls
	start
	tell load "launch 100 2"
	shows calls 0 200
	shows calls 1 $((100 * 64 * 20))
	shows calls 2 $((100 * 64 * 20))
	holds 'p["budget_ppm"] == 0 and p["launches"] == 0'
}

@test "a budget is kept by launches without the tool, and their share is shown" {
	begin
	attach count_calls --budget 1%
	start
	tell load
	is_known() { tell "launch 20 2" && holds 'p["cost_ppm"] is not None'; }
	wait_for is_known
	holds 'p["budget_ppm"] == 10000 and p["cost_ppm"] > 100000'
	value calls 0 >/dev/null # the program reports its counts
	local before=$(gbpf probe ls --json)
	tell "launch 400 2"
	local blocks=$(value calls 0) lanes=$(value calls 1)
	[ "$lanes" = $((blocks * 32 * 20)) ]
	holds "p['probed'] * 2 == $blocks and p['launches'] > 400"
	gbpf probe ls --json | python3 -c '
import json, sys
new, old = (json.loads(t)["probes"][0] for t in (sys.stdin.read(), sys.argv[1]))
launches, probed = (new[k] - old[k] for k in ("launches", "probed"))
print(launches, probed, new["cost_ppm"])
sys.exit(not (launches == 400 and probed <= 60))' "$before"
	gbpf probe ls | grep -q SHARE
}

@test "a tool without a budget is compared with launches from before it" {
	begin
	start
	tell load
	attach count_calls --to "$pid"
	holds 'p["cost_ppm"] is None'
	is_known() { tell "launch 40 2" && holds 'p["cost_ppm"] is not None'; }
	wait_for is_known
	holds 'p["cost_ppm"] > 100000 and p["launches"] == 0'
	local before=$(value calls 0)
	tell "launch 100 2"
	shows calls 0 $((before + 200))
}

@test "a tool without a budget in the same kernel runs in each launch" {
	begin
	attach count_calls --budget 1%
	attach count_blocks
	start
	tell load "launch 100 2"
	shows blocks 0 200
	id=1
	shows calls 0 200
	holds '"its budget is not kept" in p["why"]'
}

@test "a kernel that runs follows what its tool is set to" {
	begin
	attach count_calls --sample 1/1
	start
	tell load "stay 2"
	counts() { [ "$(value calls "$1")" -gt "${last:-0}" ]; }
	wait_for counts 1
	wait_for counts 2
	gbpf probe set "$id" --off
	stands() { last=$(value calls 1) lanes=$(value calls 2) && [ "$(value calls 1) $(value calls 2)" = "$last $lanes" ]; }
	wait_for stands
	gbpf probe ls | grep -q 'attached, off'
	gbpf probe set "$id" --on
	wait_for counts 1
	tell leave
}

@test "one block in N runs a tool that is set to that" {
	begin
	attach count_calls --sample 1/8
	start
	tell load "launch 1 64"
	[ "$(value calls 0)" -lt 32 ]
	local one=$(value calls 0)
	[ "$(value calls 1)" = $((one * 32 * 20)) ]
	gbpf probe set "$id" --sample 1/1
	is_all() { local before=$(value calls 0) && tell "launch 1 64" && [ "$(value calls 0)" = $((before + 64)) ]; }
	wait_for is_all
	gbpf probe set "$id" --off --json | grep -q '"off": *true'
	is_none() { local before=$(value calls 0) && tell "launch 1 64" && [ "$(value calls 0)" = "$before" ]; }
	wait_for is_none
	attach count_calls
	run -2 gbpf probe set "$id" --off
	[[ "$output" == *"without --sample"* ]]
}

@test "fewer resident blocks are reported" {
	begin
	attach count_ends
	start
	tell load "shared 4"
	fewer() { holds 'p["resident_before"] == 4 and p["resident_after"] == 3'; }
	wait_for fewer
	gbpf probe ls | grep -q '3 of 4'
}

@test "fewer resident blocks of a known launch are reported before it is repeated" {
	begin
	attach count_blocks
	start
	tell load "shared 4"
	attach count_ends
	fewer() { holds 'p["resident_before"] == 4 and p["resident_after"] == 3'; }
	wait_for fewer
}

@test "a cooperative launch that does not fit with a tool runs without it" {
	begin
	attach count_ends
	start
	tell load "together 4"
	falls_back() { holds 'p["falls_back"] == 1 and "COOPERATIVE_LAUNCH_TOO_LARGE" in p["why"]'; }
	wait_for falls_back
	shows blocks 0 0
}

@test "machine code follows what a tool is set to" {
	begin
	attach count_blocks --sample 1/1
	PROGRAM=probed
	start
	tell code "launch 2 10"
	shows blocks 0 20
	gbpf probe set "$id" --off
	is_none() { local before=$(value blocks 0) && tell "launch 1 10" && [ "$(value blocks 0)" = "$before" ]; }
	wait_for is_none
	gbpf probe set "$id" --on
	is_all() { local before=$(value blocks 0) && tell "launch 1 10" && [ "$(value blocks 0)" = $((before + 10)) ]; }
	wait_for is_all
}

@test "launches between which blocks are stopped are counted once, with a budget" {
	begin
	gbpf policy swap "$POLICIES/lc_first.bpf.o"
	attach count_calls --budget 1%
	start --class batch
	tell load "launch 300 4"
	local blocks=$(value calls 0)
	holds "p['launches'] == 300 and p['probed'] * 4 == $blocks"
}
