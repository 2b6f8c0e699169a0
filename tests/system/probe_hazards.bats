#!/usr/bin/env bats
# Programs inside kernels whose launches, contexts and errors are hard on them, on the soft GPU.

load helpers
load talk

PROGRAM=probe_hazards

# value KEY: of the map `blocks` of the probe $id; nothing if there is none.
value() {
	gbpf map dump blocks --probe "$id" --json | python3 -c '
import json, sys
print(*(e["value"] for e in json.load(sys.stdin)["entries"] if e["key"] == int(sys.argv[1])))' "$1"
}
is() { [ "$(value 0)" = "$1" ]; }
shows() { eventually is "$1"; }

# sum MAP: of all values of a map of the probe $id.
sum() {
	gbpf map dump "$1" --probe "$id" --json | python3 -c '
import json, sys
print(sum(e["value"] for e in json.load(sys.stdin)["entries"]))'
}
sums() { [ "$(sum "$1")" = "$2" ]; }

# detach: every program has ended the tool in time.
detach() { [ "$(gbpf probe detach "$id" --json | python3 -c 'import json, sys; print(*(d["late"] for d in json.load(sys.stdin)["detached"]))')" = 0 ]; }

@test "a context that comes after a reading counts from the beginning" {
	begin
	attach count_blocks
	start
	tell load "tick 10"
	shows 10
	tell context
	shows 11
	tell "tick 1" context
	shows 13
}

@test "a library's kernel is probed in every context" {
	begin
	attach count_blocks
	start
	tell "library 4"
	shows 12
}

@test "a launch that the driver refuses for the form runs the kernel, and ls says so" {
	begin
	attach count_ends
	start
	tell load "tick 2"
	shows 2
	tell full
	tool_has 'p["falls_back"] == 1'
	tool_has 're.search("^full: launches that the driver refuses .*: CUDA_ERROR_[A-Z_]*$", p["why"], re.MULTILINE)'
	eventually prints FALLBACK gbpf probe ls
	tell full "tick 1"
	shows 3
}

@test "a context that has failed keeps no tool" {
	begin
	attach count_blocks
	start
	tell load "tick 2" fault "tick 1"
	detach
	attach count_blocks
	tell "tick 1"
	detach
}

@test "a kernel that never ends delays neither a first launch nor the end of a tool" {
	begin --workers 2
	attach count_blocks
	start
	tell load "tick 1"
	shows 1
	gbpf probe detach "$id"
	tell spin
	attach count_blocks
	tell load first "tick 3" # the kernels' forms cannot be loaded yet
	tool_has 'p["waiting"] == 3' # tick of both loads, tock
	shows 0
	id=$(gbpf probe swap "$id" "$BUILD/count_blocks.bpf.o" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
	eventually shows '[p["state"] for p in d["probes"]] == ["replaced", "attached"]' gbpf probe ls
	# The name is that of the tool that stays.
	tool_has "p['version'] == $(gbpf map list --probe count_blocks --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')"
	run -2 gbpf probe log count_blocks
	[[ "$output" == *"tool $id 'count_blocks' prints nothing"* ]]
	detach
	tell release
	attach count_blocks
	tell "tick 1"
	tool_has 'p["waiting"] == 0'
	tell "tick 2"
	detach
}

@test "a tool ends in time in a context that is never idle" {
	begin
	attach count_blocks
	start
	tell load "tick 1" busy "tick 2"
	shows 3
	detach
	tell "tick 1" idle "tick 1"
	attach count_blocks
	tell "tick 1"
	tool_has 'p["waiting"] == 0'
	tell "tick 2"
	detach
}

@test "maps in host memory show what a kernel that runs has counted, and gBPF's pinned memory is known" {
	begin --workers 2
	attach count_pinned
	start --mem 256M
	tell load "tick 2" spin
	shows 3
	for map in by_kernel by_sm; do
		sums "$map" 3
	done
	[ "$(gbpf map list --probe "$id" --json | python3 -c '
import json, sys
print(*sorted(m["map"] for m in json.load(sys.stdin)["maps"] if m["scope"] == "host"))')" = "blocks by_kernel by_sm" ]
	gbpf map list --probe "$id" | grep -q '^blocks .*each program, in pinned host memory'
	eventually tenant "$pid" 't["pinned_used"] == 4096 and t["pinned_gbpf"] >= 256 * 128' # of the program itself, and of gBPF
	tell release
	detach
	eventually tenant "$pid" 't["pinned_used"] == 4096 and t["pinned_gbpf"] < 256 * 128'
}

@test "maps in host memory are read without the GPU, also next to a map in shared memory" {
	begin
	attach pin_scratch
	start
	tell load "tick 2" fault "tick 1"
	shows 4
	run -0 --separate-stderr gbpf map dump blocks --probe "$id"
	[ -z "$stderr" ] # all was copied
	detach
}

@test "maps in host memory have what a kernel counted before it failed" {
	begin
	attach count_pinned
	start
	tell load "tick 2"
	shows 2
	sums on_gpu 2
	tell fault "tick 1"
	shows 4
	sums by_kernel 4
	sums on_gpu 2 # no copy comes from the context that has failed
	detach
}

@test "values in host memory are kept when a context ends, and begin anew in another" {
	begin
	attach count_pinned
	start
	tell "library 4"
	shows 12
	sums by_kernel 12
	sums by_sm 12
	sums on_gpu 12
	detach
}

@test "a tool whose maps cannot be pinned is refused with the reason, and the kernels run" {
	begin
	start
	tell load "tick 1" pin
	attach count_pinned
	tell "tick 1"
	tool_has 'p["refused"] == 1'
	tool_has 're.search("the driver pins no host memory for its maps, [1-9][0-9]* KiB: ", p["why"])'
	tell "tick 1"
	detach
}
