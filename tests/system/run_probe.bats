#!/usr/bin/env bats
# `gbpf run --probe` on the soft GPU: what a tool of one's own counts in programs that run for a moment.

load helpers
load talk

# lines LINE...: for the standard input of a program; it exits after them.
lines() { printf '%s\n' "$@" exit; }

# probed TOOL [OPTION...] -- PROGRAM...: runs it; $status, the document in $d, and standard error in $messages.
probed() {
	status=0
	gbpf run --json --probe "$1" "${@:2}" >"$GBPF_RUNTIME_DIR/output" 2>"$GBPF_RUNTIME_DIR/messages" 3>&- || status=$?
	messages=$(<"$GBPF_RUNTIME_DIR/messages")
	d=$(python3 -c 'import sys; t = sys.stdin.read(); print(t[t.find("{"):] if "{" in t else "")' <"$GBPF_RUNTIME_DIR/output")
	[ "$status" -lt 2 ] || echo "status $status: $messages"
}

# holds EXPRESSION: of d, the document, and m, the values of its maps.
holds() {
	python3 -c '
import json, sys
d = json.loads(sys.argv[1])
m = {x["map"]: [e.get("value") for e in x["entries"]] for x in d.get("maps", [])}
sys.exit(0 if eval(sys.argv[2]) else 1)' "$d" "$1" || {
		echo "not true: $1"
		echo "$d"
		return 1
	}
}

@test "a tool has all blocks of a program that runs for a moment, each time" {
	begin
	for i in 1 2 3 4; do
		probed "$BUILD/count_blocks.bpf.o" --device soft -- "$BUILD/traced" < <(lines load "spin 3 5 32 1 1" "spin 2 7 64 1 1")
		[ "$status" -eq 0 ]
		holds 'm["blocks"] == [29, 72] and d["kernels"]["kernels"] == 1 and len(d["processes"]) == 1 and not d["detached"]'
		[ -z "$messages" ]
	done
	eventually shows "d['probes'] == []" gbpf probe ls
}

@test "each process that the program starts has values of its own, also after its end" {
	begin
	lines load "spin 2 5 32 1 1" >"$GBPF_RUNTIME_DIR/lines"
	probed "$BUILD/count_blocks.bpf.o" -- sh -c '"$0" <"$1"; "$0" <"$1" & "$0" <"$1"; wait; exit 7' "$BUILD/traced" "$GBPF_RUNTIME_DIR/lines"
	[ "$status" -eq 7 ]
	holds 'm["blocks"] == [10, 20] * 3 and len({p["pid"] for p in d["processes"]}) == 3'
	holds '[e["tenant"] for e in d["maps"][0]["entries"]] in ([a, a, b, b, c, c] for a in range(3) for b in range(3) for c in range(3))'
}

@test "values in shared memory of blocks end with these, and the others are read" {
	begin
	probed "$BUILD/count_scratch.bpf.o" -- "$BUILD/probed" < <(lines load "launch 3 10")
	[ "$status" -eq 0 ]
	holds 'm["found"] == [3 * 30 * 96, 2 * 3 * (10 * 96 - 1)] and "own" not in m and not d["detached"]'
}

@test "a process that the program leaves behind is read when that ends" {
	begin
	mkfifo "$GBPF_RUNTIME_DIR/to" "$GBPF_RUNTIME_DIR/from"
	probed "$BUILD/count_blocks.bpf.o" -- sh -c '"$0" <"$1" >"$2" & exec 3>"$1" 4<"$2"
		printf "load\nspin 1 5 32 1 1\n" >&3
		read -r pid <&4; read -r loaded <&4; read -r spun <&4' "$BUILD/traced" "$GBPF_RUNTIME_DIR/to" "$GBPF_RUNTIME_DIR/from"
	[ "$status" -eq 0 ]
	holds 'm["blocks"] == [5, 10]'
}

@test "a signal for gbpf run is the program's" {
	begin
	PROGRAM=traced
	start --probe "$BUILD/count_blocks.bpf.o"
	tell load "spin 1 5 32 1 1"
	kill -TERM "${pids[-1]}"
	wait "${pids[-1]}" && status=0 || status=$?
	[ "$status" -eq 143 ]
	has_exited "$pid"
	eventually shows "d['probes'] == []" gbpf probe ls
}

@test "people read tables, and lines that the tool prints" {
	begin
	run --separate-stderr gbpf run --probe "$BUILD/count_blocks.bpf.o" --name mine -- "$BUILD/traced" < <(lines load "spin 3 5 32 1 1")
	[ "$status" -eq 0 ]
	[[ "$output" == *$'\nmap blocks\n'*PID*KEY*VALUE* ]]
	[[ "$output" =~ [0-9]+\ +0\ +15 ]]
	[ -z "$stderr" ]
	run --separate-stderr gbpf run --probe "$BUILD/print_blocks.bpf.o" -- "$BUILD/probed" < <(lines load "launch 1 7")
	[ "$status" -eq 0 ]
	[ "$(grep -c ' of 7, -1 or ff%$' <<<"$stderr")" -eq 3 ]
	[ "$(grep -c ' block 0 warp 1 lane [0-9]*: lane [0-3][0-9]$' <<<"$stderr")" -eq 32 ]
	[ "$(wc -l <<<"$stderr")" -eq 36 ] # and the last block's
	[[ "$output" != *$'\nmap '* ]] # of constants, or of the lines
}

@test "a program that launches nothing, and one whose kernels match nothing" {
	begin
	run --separate-stderr gbpf run --probe "$BUILD/count_blocks.bpf.o" -- sh -c 'exit 3'
	[ "$status" -eq 3 ]
	[ -z "$output" ]
	[[ "$stderr" == *"no kernel ran tool 'count_blocks'"* ]]
	run --separate-stderr gbpf run --probe "$BUILD/print_blocks.bpf.o" -- "$BUILD/traced" < <(lines load "spin 1 1 32 1 1")
	[ "$status" -eq 0 ]
	[[ "$stderr" == *"no kernel ran tool 'print_blocks'"* ]]
}

@test "the program does not start without its tool" {
	begin
	for what in "$BUILD/nosuch.bpf.o" "$BUILD/traced" nosuch; do
		run --separate-stderr gbpf run --probe "$what" -- touch "$GBPF_RUNTIME_DIR/ran"
		[ "$status" -eq 125 ]
		[ -n "$stderr" ]
		[ ! -e "$GBPF_RUNTIME_DIR/ran" ]
	done
	run -125 --separate-stderr gbpf run --off --probe smmap -- true
	[[ "$stderr" == *"run: --off: kernels run no tool"* ]]
	run -125 --separate-stderr gbpf run --name 12 --probe smmap -- true
	[[ "$stderr" == *"the name '12' would mean a process"* ]]
	for name in $'a\001' $'a\xff'; do
		run -125 --separate-stderr gbpf run --name "$name" --probe smmap -- true
		[[ "$stderr" == *"--probe: the name 'a"*"' has others"* ]]
	done
	run -127 gbpf run --probe smmap -- nowhere/prog
	touch "$GBPF_RUNTIME_DIR/text"
	run -126 --separate-stderr gbpf run --probe smmap -- "$GBPF_RUNTIME_DIR/text"
	[ -z "$output" ]
	[ "$(wc -l <<<"$stderr")" -eq 1 ] # nothing of a tool that no kernel ran
}

@test "a tool that is detached, and a gbpfd that is killed, leave the program alone" {
	begin
	PROGRAM=traced
	start --probe "$BUILD/count_blocks.bpf.o"
	tell load "spin 1 5 32 1 1"
	gbpf probe detach --all
	tell "spin 1 5 32 1 1"
	echo exit >&"$in"
	wait "${pids[-1]}"
	start --probe "$BUILD/count_blocks.bpf.o"
	tell load "spin 1 5 32 1 1"
	kill -9 "${pids[1]}"
	tell "spin 1 5 32 1 1"
	echo exit >&"$in"
	wait "${pids[-1]}"
}
