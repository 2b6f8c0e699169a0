#!/usr/bin/env bats
# The number of the launch inside kernels, on the soft GPU: each block of a launch sees the number that its brackets see,
# whatever other launches run at the same time, and the kernel computes what it computes without.

load helpers
load talk

# entries MAP: KEY:VALUE of the probe $id, by key.
entries() {
	gbpf map dump "$1" --probe "$id" --json | python3 -c '
import json, sys
print(*("%d:%d" % (e["key"], e["value"]) for e in sorted(json.load(sys.stdin)["entries"], key=lambda e: e["key"])))'
}

# agree LAUNCHES BLOCKS: that many launches were numbered, with that many blocks in all, and blocks and brackets agree.
agree() {
	local seen=$(entries counted)
	[ "$seen" = "$(entries begun)" ] && [ "$seen" = "$(entries ended)" ] && sums_are "$1" "$2" <<<"$seen"
}
# sums_are ENTRIES SUM, of standard input.
sums_are() {
	python3 -c '
import sys
values = [int(e.split(":")[1]) for e in sys.stdin.read().split()]
sys.exit([len(values), sum(values)] != [int(a) for a in sys.argv[1:]])' "$1" "$2"
}
counts() { entries "$1" | sums_are "$2" "$3"; }

@test "blocks see the number that brackets see, of launches by each call on streams at the same time" {
	begin
	attach number_launches
	start
	tell load "numbers 200"
	eventually agree 200 600
	forms_are "1 0 0"
	tool_has 'p["falls_back"] == 0'
	tell "threads 40 4"
	eventually agree 360 $((600 + 40 * 4 * 3))
	tell "variables 3" # a kernel without parameters
	eventually agree 363 $((600 + 40 * 4 * 3 + 6))
	tell library
	eventually agree 366 $((600 + 40 * 4 * 3 + 6 + 15))
}

@test "lanes and sites in the body know the number, and only launches with such programs have one" {
	begin
	start
	tell load "launch 5 1"
	attach number_blocks --to "$pid"
	tell "numbers 10" # from now on the kernel is known
	tool_has 'p["kernels"] == 1'
	local before=$(entries counted | wc -w)
	tell "numbers 20"
	eventually counts counted $((before + 20)) $(($(entries counted | tr ' ' '\n' | cut -d: -f2 | paste -sd+ | bc)))
	by_launch() {
		[ "$(entries counted | python3 -c '
import sys
print(*("%s:%d" % (e.split(":")[0], 96 * int(e.split(":")[1])) for e in sys.stdin.read().split()))')" = "$(entries threads)" ]
	}
	eventually by_launch
	eventually counts stores $((before + 20)) $((95 * (before + 20))) # the first block's, less a thread
	local last=$(entries counted | tr ' ' '\n' | tail -n 1 | cut -d: -f1)
	[ "$last" = $((before + 20)) ] # from 1, without a gap
}

@test "an entry stub knows the number, but not that of a block that has ended" {
	begin
	attach number_launches
	start
	tell code "numbers 200"
	eventually agree 200 600
	forms_are "0 1 0"
	tell "threads 40 4"
	eventually agree 360 $((600 + 40 * 4 * 3))
	tell "graph 3"
	gbpf probe detach "$id"
	tell "launch 1 1"
	attach number_ends --to "$pid"
	tell "launch 1 1"
	tool_has 'p["refused"] == 1'
	says "does not know the number (launch) of its own"
	gbpf probe detach "$id"
	tell unload
	attach number_ends --to "$pid"
	tell load "launch 2 5"
	eventually counts ends 2 10
}

@test "launches of graphs have the number 0" {
	begin
	attach number_entry
	start
	tell load "launch 1 4" "graph 3"
	is() { [ "$(entries counted)" = "$1" ]; }
	eventually is "0:3 1:4"
	tell unload code "graph 2"
	eventually is "0:5 1:4"
}

@test "a number is compared with the kernels themselves on copies" {
	begin
	gbpf probe attach --budget none "$BUILD/number_entry.bpf.o" --verify >"$BATS_TEST_TMPDIR/result" &
	local verifier=$!
	eventually shows '[p["id"] for p in d["probes"]] == [1]' gbpf probe ls
	start
	tell "compare same 5"
	wait "$verifier"
	grep -qE "1 equal, 0 differing, 0 not compared" "$BATS_TEST_TMPDIR/result"
	id=1
	is() { [ "$(entries counted)" = "$1" ]; }
	eventually is "1:1 2:1 3:1 4:1 5:1" # once each, compared or not
}

@test "programs in device functions know the number, also behind calls through pointers" {
	begin
	start --probes
	tell load "launch 1 1"
	attach number_calls --to "$pid"
	tell "launch 1 1" # from now on the kernel is known
	tool_has 'p["kernels"] == 1'
	local n=$(entries calls | wc -w)
	tell "numbers 20" # the lanes of the first block that do not leave
	eventually counts calls $((n + 20)) $((95 * (n + 20)))
	tell unload own "inside 5"
	eventually counts calls $((n + 25)) $((95 * (n + 20) + 5 * 32))
	tell unload code "launch 1 1"
	tool_has 'p["refused"] == 1'
}

# counts_stopped COMMAND: of the kernel that the program loads with it.
counts_stopped() {
	begin
	gbpf policy swap "$POLICIES/lc_first.bpf.o"
	start --class batch
	attach number_entry --to "$pid"
	tell "$1"
	gbpf run --device soft --class latency -- "$SAMPLES/lcserve" --rate 300 --requests 100000 >/dev/null 2>&1 3>&- &
	pids+=($!)
	interrupted() {
		tell "launch 10 2000"
		launches=$((launches + 10))
		[ "$(interruptions)" -ge 3 ]
	}
	launches=0
	eventually interrupted
	eventually counts counted "$launches" $((2000 * launches))
	! entries counted | tr ' ' '\n' | grep -v ':2000$' # each launch has all of its blocks
}

@test "a launch that is stopped between blocks keeps its number" {
	counts_stopped load
}

@test "machine code with programs that read the number is not stopped between blocks" {
	begin
	gbpf policy swap "$POLICIES/lc_first.bpf.o"
	start --class batch
	attach number_entry --to "$pid"
	tell code
	gbpf run --device soft --class latency -- "$SAMPLES/lcserve" --rate 300 --requests 300 >/dev/null 2>&1 3>&- &
	local service=$!
	tell "launch 20 2000"
	wait "$service"
	eventually counts counted 20 40000
	! entries counted | tr ' ' '\n' | grep -v ':2000$'
	eventually prints probed gbpf ps --why
}
