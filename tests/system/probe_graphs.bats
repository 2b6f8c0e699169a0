#!/usr/bin/env bats
# Probes in kernel nodes of executable graphs, on the soft GPU: each replay is counted exactly, its results are the program's,
# and a node that cannot be reached is reported.

load helpers
load talk

PROGRAM=probed_graphs

swap() {
	id=$(gbpf probe swap "$id" "$BUILD/$1.bpf.o" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
}

is() { [ "$(value "$1" "$2")" = "$3" ]; }
shows() { eventually is "$@"; }

falls_back() { tool_has 'p["falls_back"] == 1'; }

all_reachable() {
	run -0 gbpf probe ls --json # settled: it must not be said at any time
	[[ "$output" != *"not reachable"* ]]
}

@test "nodes of every kind of graph are probed in each replay, after the graph was destroyed" {
	begin
	attach count_blocks
	start
	tell load
	local n=0
	for kind in explicit captured clone child kept library function; do
		tell "make $kind 5" "replay 3" "replay 1" end
		n=$((n + 24))
		shows blocks 0 $n
	done
	all_reachable
}

@test "attach, swap and detach act from the next replay on" {
	begin
	start
	tell load "make captured 5" "replay 2"
	attach count_blocks --to "$pid"
	tell "replay 1" # from now on the kernel is known
	has_kernels 1
	local before=$(value blocks 0)
	tell "replay 4"
	shows blocks 0 $((before + 24))
	swap count_warps
	has_kernels 1
	tell "replay 2"
	shows warps 0 36
	shows warps 1 $((2 * 6 * 96))
	gbpf probe detach "$id"
	tell "replay 2"
	attach count_blocks --to "$pid"
	shows blocks 0 0
}

@test "a tool whose budget a graph cannot keep says so, and runs in each launch of the graph" {
	begin
	attach count_blocks --budget 1%
	start
	tell load "make explicit 5" "replay 2"
	shows blocks 0 12
	says "scale: its budget is not kept in graphs"
}

@test "a detached tool ends although the graph is not launched again" {
	begin
	attach count_blocks
	start
	tell load "make explicit 5" "replay 2"
	shows blocks 0 12
	[ "$(gbpf probe detach "$id" --json | python3 -c 'import json, sys; print(*(d["late"] for d in json.load(sys.stdin)["detached"]))')" = 0 ]
	eventually shows 'd["probes"] == []' gbpf probe ls
	tell "replay 2"
}

@test "the program sees its own kernels, and changes nodes that are probed" {
	begin
	attach count_blocks
	start
	tell load "make kept 5" "replay 1" "set 7" "replay 2" "edit 9" "replay 2" "set 3" "replay 1" record "replay 1"
	shows blocks 0 $((6 + 16 + 20 + 8))
	swap count_warps
	has_kernels 1
	tell "replay 1"
	shows warps 0 12
	gbpf probe detach "$id"
	tell "replay 1" end
}

@test "the parameters of a node are the executable graph's, not those that the graph got later" {
	begin
	attach count_blocks
	start
	tell load "make kept 5" "replay 1" "stale 9" "replay 1"
	swap count_warps
	has_kernels 1
	tell "replay 1"
	shows warps 0 18
	all_reachable
	gbpf probe detach "$id"
	tell "replay 1"
}

# comes: a tool comes to $pid, whose next replay is not counted for sure; sets $before.
comes() {
	attach count_blocks --to "$pid"
	tell "replay 1"
	has_kernels 1
	before=$(value blocks 0)
}

@test "nodes that were changed before a tool came are probed with the parameters that the executable graph has" {
	begin
	for change in "stale 9:5" "set 7:7" "set 7:7" "stale 3:5" "edit 4:4"; do
		start
		tell load "make kept 5" "${change%:*}" "replay 1" "stale 2"
		comes
		tell "replay 2"
		shows blocks 0 $((before + 2 * (${change#*:} + 1)))
		tell "set 8" "replay 1" "edit 6" "replay 1"
		shows blocks 0 $((before + 2 * (${change#*:} + 1) + 9 + 7))
		all_reachable
		gbpf probe detach "$id"
		tell "replay 1" end
	done
}

@test "child graphs that are replaced are probed, before a tool came and with it" {
	begin
	start
	tell load "make nested 5" "replace 7" "replay 1" "replace 4" "replay 1"
	comes
	tell "replay 2" "replace 9" "replay 1"
	shows blocks 0 $((before + 10 + 10))
	all_reachable
	gbpf probe detach "$id"
	tell "replay 1" "replace 3" "replay 1" end
}

@test "an executable graph that is updated from other graphs is probed" {
	begin
	attach count_blocks
	start
	tell load "make captured 5" "replay 1" "update 7" "replay 2" "update 3" "replay 2"
	shows blocks 0 $((6 + 16 + 8))
	swap count_warps
	has_kernels 1
	tell "replay 1"
	shows warps 0 12
	gbpf probe detach "$id"
	tell "replay 1" "update 9" "replay 1"
	attach count_blocks --to "$pid"
	has_kernels 1
	tell "replay 2"
	shows blocks 0 20
}

@test "an executable graph that was updated from another graph before a tool came is probed" {
	begin
	start
	tell load "make captured 5" "update 9" "replay 1"
	comes
	tell "replay 2" "update 2" "replay 2"
	shows blocks 0 $((before + 20 + 6))
	all_reachable
	gbpf probe detach "$id"
	tell "replay 1" end
}

@test "a node that is set after an update from another graph runs the program's kernel" {
	begin
	attach count_blocks
	start
	tell load "make kept 5" "replay 1" "update 7" "replay 1" "set 2" "replay 1"
	shows blocks 0 14
	falls_back
	says "updated from another graph, and changed since"
	tell "edit 4" "replay 1"
	shows blocks 0 19
}

@test "a node that is destroyed runs the program's kernel from then on" {
	begin
	attach count_blocks
	start
	tell load "make kept 5" "replay 1" remove "replay 2"
	shows blocks 0 $((6 + 2))
	falls_back
	says "the node was destroyed"
	gbpf probe detach "$id"
	tell "replay 1" end
}

@test "the end of blocks is counted in nodes, which get more shared memory" {
	begin
	attach count_ends
	start
	tell load "make explicit 5" "replay 2"
	shows blocks 0 12
}

@test "a form that the driver refuses leaves the program's kernel in the node" {
	begin
	attach count_ends
	start
	tell load "make full 5" "replay 2"
	falls_back
	tool_has 're.search("scale: nodes of a graph are not reachable.*: CUDA_ERROR_", p["why"])'
	shows blocks 0 0
	gbpf probe detach "$id"
	attach count_blocks
	tell "replay 1"
	has_kernels 1
	local before=$(value blocks 0)
	tell "replay 1"
	shows blocks 0 $((before + 6))
}

@test "machine code is probed in nodes, also of programs whose kernels are stopped between blocks" {
	begin
	attach count_blocks
	start
	tell code "make explicit 5" "replay 3" end "make captured 2" "replay 1" "replay 1"
	shows blocks 0 24
	gbpf probe detach "$id"
	tell "replay 1" end
	gbpf policy swap "$POLICIES/lc_first.bpf.o"
	start --class batch
	attach count_blocks --to "$pid"
	tell code "make kept 5" "replay 3" "set 7" "replay 1"
	shows blocks 0 26
	swap count_blocks
	has_kernels 1
	tell "replay 1"
	shows blocks 0 8
	gbpf probe detach "$id"
	tell "replay 1" "set 3" "replay 1"
	comes
	tell "replay 2"
	shows blocks 0 $((before + 8))
}

@test "modules are unloaded and contexts end with executable graphs" {
	begin
	attach count_blocks
	start
	tell load "make explicit 5" "replay 1" context "make captured 2" "replay 1" unload end
	shows blocks 0 17
	has_kernels 0
	gbpf probe detach "$id"
}

# held_amid LINE: sends LINE, which unloads or ends a context, to a program whose kernels have just been forgotten then, while its
# executable graph still has their forms; a further tool makes the probe thread look at the graph.
held_amid() {
	local first=$id
	echo "$1" >&"$in"
	eventually test -e "$GBPF_RUNTIME_DIR/held"
	attach count_warps --to "$pid"
	tool_has 'p["state"] == "attached"'
	rm "$GBPF_RUNTIME_DIR/held"
	local answer
	read -r -t "$EVENTUALLY_SECONDS" -u "$out" answer
	[ "$answer" = ok ]
	has_kernels 0
	gbpf probe detach "$id"
	id=$first
	has_kernels 0
}

# start_held: starts the program over the shim's test build, which is held once.
start_held() {
	mkdir "$GBPF_RUNTIME_DIR/points"
	cp "$BUILD/libcuda-points.so" "$GBPF_RUNTIME_DIR/points/libcuda.so.1"
	printf '#!/bin/sh\nexec env LD_PRELOAD=%q GBPF_POINT_HOLD=%q %q\n' "$GBPF_RUNTIME_DIR/points/libcuda.so.1" \
		"shim.probe.forgotten:$GBPF_RUNTIME_DIR/held" "$BUILD/$PROGRAM" >"$GBPF_RUNTIME_DIR/program"
	chmod +x "$GBPF_RUNTIME_DIR/program"
	BUILD=$GBPF_RUNTIME_DIR PROGRAM=program start
}

@test "kernels that unloading has forgotten are not known again by way of an executable graph" {
	begin
	attach count_blocks
	start_held
	tell load "make explicit 5" "replay 1"
	has_kernels 1
	held_amid unload
	tell end
}

@test "kernels that the end of a context has forgotten are not known again by way of an executable graph" {
	begin
	attach count_blocks
	start_held
	tell load
	held_amid context
}

@test "attach, swap and detach while replays are in flight change no result" {
	begin
	start
	tell load "make captured 5" "replay 1"
	echo "replay 20000" >&"$in"
	for i in 1 2 3; do
		attach count_blocks
		swap count_warps
		gbpf probe detach "$id"
	done
	local answer
	read -r -t "$EVENTUALLY_SECONDS" -u "$out" answer
	[ "$answer" = ok ]
	tell "replay 1"
	eventually shows 'd["probes"] == []' gbpf probe ls
}
