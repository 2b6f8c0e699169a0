#!/usr/bin/env bats
# Programs before and behind launches, on the soft GPU: each launch has both once, in order, whatever runs between them.

load helpers
load talk

BEGINS=0 ENDS=1 BLOCKS=2 THREADS=3 BEGUN=4 ENDED=5 UNTIMED=6 DISORDER=7 KERNELS=8

# values MAP: all of the probe $id, by key.
values() {
	gbpf map dump "$1" --probe "$id" --json | python3 -c '
import json, sys
print(*(e["value"] for e in sorted(json.load(sys.stdin)["entries"], key=lambda e: e["key"])))'
}

# counted LAUNCHES: as many have begun and ended, all in order and with their times.
counted() {
	local v
	read -r -a v <<<"$(values launches)"
	[ "${v[$BEGINS]} ${v[$ENDS]} ${v[$UNTIMED]} ${v[$DISORDER]} ${v[$KERNELS]}" = "$1 $1 0 0 0" ] &&
		[ "${v[$BEGUN]}" = "${v[$ENDED]}" ]
}
sum() {
	local v
	read -r -a v <<<"$(values launches)"
	echo "${v[$1]}"
}
in_order() { [ "$(values order)" = "$1 $1 0 $2" ]; }

@test "each launch begins and ends once, with its shape and times" {
	begin
	attach count_launches
	start
	tell load "launch 3 10" "launch 1 1"
	eventually counted 4
	[ "$(sum $BLOCKS)" = 31 ]
	[ "$(sum $THREADS)" = $((4 * 96)) ]
	[ "$(sum $BEGUN)" = 10 ]
	forms_are "0 0 1"
	eventually prints "brackets 1" gbpf probe ls
	tell "config 4"
	eventually counted 8
	[ "$(sum $THREADS)" = $((4 * 96 + 4 * (96 + 48))) ]
}

@test "one object around launches is attached twice" {
	begin
	attach count_launches
	attach count_launches
	start
	tell load "launch 3 10"
	eventually counted 3
	id=1
	eventually counted 3
}

@test "kernels that neither PTX nor stub can probe have brackets" {
	begin
	attach count_launches
	start
	tell both "launch 2 5" "variables 4"
	eventually counted 6
	forms_are "0 0 2"
	tell unload load "launch 2 5" library
	eventually counted 11
}

@test "kernels that share brackets are set each for itself" {
	begin
	attach count_launches --sample 1/1
	start
	tell load "launch 2 5" "variables 4"
	eventually counted 6
	gbpf probe set "$id" --kernel add --off
	adds() { local before=$(sum $ENDS) && tell "${@:2}" && [ "$(sum $ENDS)" = $((before + $1)) ]; }
	eventually adds 0 "variables 4"
	adds 3 "launch 3 5"
	gbpf probe set "$id" --off
	gbpf probe set "$id" --kernel 'ad?' --on
	eventually adds 4 "variables 4"
	adds 0 "launch 3 5"
}

@test "programs in the kernel run between those around it" {
	begin
	attach order_launches
	start
	tell load "launch 5 8" "launch 3 4"
	eventually in_order 52 8
	forms_are "1 0 0"
	tell unload code "launch 5 8"
	eventually in_order 92 13
	forms_are "0 1 0"
}

parts_are() { [ "$(values parts)" = "$1" ]; }

@test "a tool runs without programs that the kernel has no places for only if that is allowed" {
	begin
	attach count_parts
	start
	tell code "launch 2 5"
	says "(--partial allows that)"
	tool_has '(p["refused"], p["kernels"], p["in_part"]) == (1, 0, 0)'
	[ "$(values parts)" = "0 0 0" ]
	gbpf probe detach "$id"
	attach count_parts --partial
	tell unload code "launch 2 5"
	eventually parts_are "2 10 0"
	forms_are "0 1 0"
	says "scale: runs without barrier: "
	tool_has 'p["in_part"] == 1'
	eventually prints "stub 1; 1 in part" gbpf probe ls
	tell unload both "variables 3"
	eventually parts_are "5 10 0"
	forms_are "0 0 1"
	says "add: runs without block_enter, barrier: "
	tell unload load "launch 2 5"
	eventually parts_are "7 20 0"
	forms_are "1 0 0"
	tool_has 'p["in_part"] == 0'
}

@test "a refused launch has no end, and its successors have their times" {
	begin
	attach count_launches
	start
	tell load "launch 1 1" "refused 1100" "launch 20 1"
	ended() { [ "$(sum $ENDS) $(sum $UNTIMED)" = "21 0" ]; }
	eventually ended
	[ "$(sum $BEGINS)" = 1121 ]
}

@test "a queue that the program fills before it lets it run holds nothing up" {
	export GBPF_SOFT_STRICT=7 # 1024 launches fill it
	begin
	gbpf policy swap "$POLICIES/fifo.bpf.o" # which defers nothing
	attach count_launches
	GBPF_PATIENCE=4 start # a launch waits for a second times that
	tell load "launch 2 1" "behind 600"
	local ends=$(sum $ENDS)
	[ "$ends" -ge 100 ] # the others may have run without
	eventually counted "$ends"
	[ "$ends" = 602 ] || tool_has 'p["falls_back"] == 1'
	tell "launch 150 1" "launch 150 1"
	eventually counted $((ends + 300))
}

@test "streams share brackets, and attach and detach lose no launch" {
	begin
	start
	tell load
	echo "threads 60 4" >&"$in"
	for i in 1 2 3; do
		attach count_launches
		gbpf probe detach "$id"
	done
	local answer
	read -r -t "$EVENTUALLY_SECONDS" -u "$out" answer
	[ "$answer" = ok ]
	attach count_launches --to "$pid"
	tell "launch 1 1" # from now on the kernel is known
	forms_are "0 0 1"
	local before=$(sum $ENDS)
	tell "threads 40 4"
	eventually counted $((before + 160))
	tell context fork "launch 1 2"
	eventually counted $((before + 162))
}

@test "a kernel with brackets is deferred as a whole, not stopped between its blocks" {
	begin
	gbpf policy swap "$POLICIES/lc_first.bpf.o"
	start --class batch
	attach count_launches --to "$pid"
	tell load
	gbpf run --device soft --class latency -- "$SAMPLES/lcserve" --rate 300 --requests 100000 >/dev/null 2>&1 3>&- &
	pids+=($!)
	for i in 1 2 3 4; do
		tell "launch 10 500"
	done
	eventually counted 40
	[ "$(sum $BLOCKS)" = 20000 ]
}
