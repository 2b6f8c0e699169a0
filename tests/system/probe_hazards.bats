#!/usr/bin/env bats
# Programs inside kernels whose launches, contexts and errors are hard on them, on the soft GPU.

load helpers
load talk

PROGRAM=probe_hazards

# attach NAME: sets $id.
attach() {
	id=$(gbpf probe attach "$BUILD/$1.bpf.o" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
}

# value KEY: of the map `blocks` of the probe $id; nothing if there is none.
value() {
	gbpf map dump blocks --probe "$id" --json | python3 -c '
import json, sys
print(*(e["value"] for e in json.load(sys.stdin)["entries"] if e["key"] == int(sys.argv[1])))' "$1"
}
is() { [ "$(value 0)" = "$1" ]; }
shows() { wait_for is "$1"; }

# field NAME: of the probe $id.
field() {
	gbpf probe ls --json | python3 -c '
import json, sys
print(*(p[sys.argv[1]] for p in json.load(sys.stdin)["probes"] if p["id"] == int(sys.argv[2])))' "$1" "$id"
}
field_is() { [ "$(field "$1")" = "$2" ]; }

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
	wait_for field_is falls_back 1
	field why | grep -q '^full: launches that the driver refuses .*: CUDA_ERROR_[A-Z_]*$'
	gbpf probe ls | grep -q FALLBACK
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
	wait_for field_is waiting 3 # tick of both loads, tock
	shows 0
	detach
	tell release
	attach count_blocks
	tell "tick 1"
	wait_for field_is waiting 0
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
	wait_for field_is waiting 0
	tell "tick 2"
	detach
}
