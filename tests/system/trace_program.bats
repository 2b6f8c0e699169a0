#!/usr/bin/env bats
# `gbpf trace TOOL -- PROGRAM` on the soft GPU: complete figures of programs that run for a moment, and their exit codes.

load helpers
load talk

PROGRAM=traced

# lines LINE...: for the standard input of a program; it exits after them.
lines() { printf '%s\n' "$@" exit; }

# one_shot TOOL [OPTION...] -- PROGRAM...: traces it; $status, the document in $d, and standard error in $messages.
one_shot() {
	status=0
	gbpf trace "$1" --json "${@:2}" >"$GBPF_RUNTIME_DIR/output" 2>"$GBPF_RUNTIME_DIR/messages" 3>&- || status=$?
	messages=$(<"$GBPF_RUNTIME_DIR/messages")
	d=$(python3 -c 'import sys; t = sys.stdin.read(); print(t[t.find("{"):] if "{" in t else "")' <"$GBPF_RUNTIME_DIR/output")
	[ "$status" -lt 2 ] || echo "status $status: $messages"
}

# holds EXPRESSION: of f, the figures, and d, the document.
holds() {
	python3 -c '
import json, sys
d = json.loads(sys.argv[1])
f = d.get("figures")
sys.exit(0 if eval(sys.argv[2]) else 1)' "$d" "$1" || {
		echo "not true: $1"
		echo "$d"
		return 1
	}
}

has_tools() { eventually shows "len(d['probes']) == $1" gbpf probe ls; }

@test "a program that runs for a moment has all blocks of all launches, each time" {
	begin
	for tool in threadhist smmap threadhist smmap threadhist; do
		one_shot "$tool" -- "$BUILD/traced" < <(lines load "spin 3 5 32 1 1" "spin 2 7 64 1 1")
		[ "$status" -eq 0 ]
		holds 'd["total"] and d["of"].endswith("/traced") and f["blocks"] == 29 and d["kernels"] == 1'
	done
	[ -z "$messages" ]
	has_tools 0
}

@test "processes that the program starts are traced, one after the other and at the same time" {
	begin
	lines load "spin 2 5 32 1 1" >"$GBPF_RUNTIME_DIR/lines"
	one_shot threadhist -- sh -c '"$0" <"$1"; "$0" <"$1" & "$0" <"$1"; wait' "$BUILD/traced" "$GBPF_RUNTIME_DIR/lines"
	[ "$status" -eq 0 ]
	holds 'f["launches"] == 6 and f["blocks"] == 30'
}

@test "the exit code is the program's" {
	begin
	lines load "spin 1 5 32 1 1" >"$GBPF_RUNTIME_DIR/lines"
	one_shot smmap -- sh -c '"$0" <"$1"; exit 7' "$BUILD/traced" "$GBPF_RUNTIME_DIR/lines"
	[ "$status" -eq 7 ]
	holds 'f["blocks"] == 5'
	one_shot smmap -- sh -c '"$0" <"$1"; kill -9 $$' "$BUILD/traced" "$GBPF_RUNTIME_DIR/lines"
	[ "$status" -eq 137 ]
	holds 'f["blocks"] == 5'
	[[ "$messages" == *"sh ended with code 137. "* ]]
	one_shot smmap -- sh -c 'exit 3'
	[ "$status" -eq 3 ]
	holds 'd["error"]["exit"] == 3'
	has_tools 0
}

@test "a program that cannot be started" {
	one_shot smmap -- nowhere/prog
	[ "$status" -eq 127 ]
	holds 'd["error"]["exit"] == 127 and "nowhere/prog" in d["error"]["message"]'
	[ ! -e "$GBPF_RUNTIME_DIR/control.sock" ] # nothing was started for it
	begin
	touch "$GBPF_RUNTIME_DIR/text"
	one_shot smmap -- "$GBPF_RUNTIME_DIR/text"
	[ "$status" -eq 126 ]
	has_tools 0
}

@test "gbpfd is started if none runs" {
	[ ! -e /dev/nvidiactl ] || skip "it would use the NVIDIA GPU"
	one_shot threadhist -- "$BUILD/traced" < <(lines load "spin 2 5 32 1 1")
	gbpf -q shutdown
	[ "$status" -eq 0 ]
	holds 'f["blocks"] == 10'
}

@test "that gbpfd uses another device is reported once" {
	begin
	touch "$GBPF_RUNTIME_DIR/libcuda.so.1"
	GBPF_REAL_CUDA=$GBPF_RUNTIME_DIR/libcuda.so.1 one_shot smmap -- true
	[ "$status" -eq 8 ]
	[ "$(grep -c "gbpfd uses the device 'soft', this program 'nvidia'" <<<"$messages")" -eq 1 ]
}

@test "no figures: what is known of the program" {
	begin
	one_shot smmap -- true
	[ "$status" -eq 8 ]
	holds '"no process of true was seen to use CUDA" in d["error"]["message"]'
	one_shot smmap -- "$BUILD/traced" < <(lines load)
	[ "$status" -eq 8 ]
	holds 'd["error"]["message"].endswith("/traced ended before a kernel ran the tool")'
	one_shot smmap --kernel gemm -- "$BUILD/traced" < <(lines load "spin 1 1 32 1 1")
	[ "$status" -eq 8 ]
	holds '"ended before a kernel that matches \u0027gemm\u0027 ran the tool" in d["error"]["message"]'
	one_shot blocktime -- "$BUILD/traced" < <(lines load size)
	[ "$status" -eq 4 ]
	holds '"no kernel could run the tool: size: " in d["error"]["message"]'
}

# waiting_trace [OPTION...]: threadhist, of a program that waits for lines, of which it gets two.
waiting_trace() {
	rm -f "$GBPF_RUNTIME_DIR/in"
	mkfifo "$GBPF_RUNTIME_DIR/in"
	gbpf trace threadhist --json --interval 10ms "$@" -- "$BUILD/traced" <"$GBPF_RUNTIME_DIR/in" >"$GBPF_RUNTIME_DIR/output" 3>&- &
	tracer=$!
	pids+=("$tracer")
	exec {in}>"$GBPF_RUNTIME_DIR/in"
	printf 'load\nspin 1 5 32 1 1\n' >&"$in"
}

# started_trace [OPTION...]: likewise; the program has done the lines, and the trace has read the figures.
started_trace() {
	waiting_trace "$@"
	eventually has_done 2
	eventually has_read 5
	pid=$(sed -n 's/^pid //p' "$GBPF_RUNTIME_DIR/output")
}

# has_read N: the trace has read N blocks, in all intervals so far.
has_read() {
	python3 -c '
import json, sys
sys.exit(sum(json.loads(l)["figures"]["blocks"] for l in sys.stdin if l[0] == "{" and l[-1] == "\n") != int(sys.argv[1]))' "$1" \
		<"$GBPF_RUNTIME_DIR/output"
}

# has_done N: the program has done N lines. A killed trace may have left a part of a line before one of them.
has_done() { [ "$(grep -c 'ok$' "$GBPF_RUNTIME_DIR/output")" -ge "$1" ]; }

# exits: the program $pid exits; it waits for no holder, or its wait ends.
exits() {
	echo exit >&"$in"
	eventually has_exited "$pid"
}

document() { d=$(tail -n 1 "$GBPF_RUNTIME_DIR/output"); }

@test "a signal for the trace is the program's, whose end ends the trace" {
	begin
	for sig in TERM USR1; do
		started_trace
		kill -"$sig" "$tracer"
		wait "$tracer" && status=0 || status=$?
		[ "$status" -eq $((128 + $(kill -l "$sig"))) ]
		has_exited "$pid"
		document
		holds 'f["blocks"] == 5'
	done
}

@test "a stopped trace delays the exit of its program for a limited time" {
	begin
	GBPF_PATIENCE=5 started_trace
	kill -STOP "$tracer"
	exits
	kill -CONT "$tracer"
	wait "$tracer"
	document
	holds 'f["blocks"] == 5'
}

@test "a killed trace leaves its program alone" {
	begin
	started_trace
	kill -9 "$tracer"
	has_tools 0
	echo 'spin 1 5 32 1 1' >&"$in"
	eventually has_done 3
	exits
}

@test "the end of a program is seen if the parent of the trace ignores SIGCHLD" {
	begin
	python3 -c 'import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execvp(sys.argv[1], sys.argv[1:])' gbpf trace smmap -- sh -c 'exit 3' 3>&- &
	pids+=($!)
	eventually has_exited $!
	wait $! && status=0 || status=$?
	[ "$status" -eq 3 ]
}

@test "--time counts from the first kernel, and ends the program" {
	begin
	waiting_trace --time 3s
	wait "$tracer"
	has_exited "$(sed -n 's/^pid //p' "$GBPF_RUNTIME_DIR/output")"
	document
	holds 'f["blocks"] == 5'
}

@test "a tool that is detached meanwhile leaves the program alone" {
	begin
	started_trace
	gbpf probe detach "$(gbpf probe ls --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["probes"][0]["id"])')" # settled: it ran a kernel
	printf 'spin 1 5 32 1 1\nfail\n' >&"$in"
	wait "$tracer" && status=0 || status=$?
	[ "$status" -eq 1 ] # the program's
	has_done 3
}

@test "a program waits for a holder alone: not without one, and not when it or gbpfd has ended" {
	begin
	GBPF_PATIENCE=1000 start --name traced
	gbpf probe attach smmap --to traced --budget none
	tell load "spin 1 5 32 1 1"
	kill -STOP "${pids[1]}" # gbpfd: it sends nothing
	exits
	kill -CONT "${pids[1]}"
	GBPF_PATIENCE=1000 start --name traced
	tell load "spin 1 5 32 1 1"
	gbpf trace smmap --of traced >/dev/null 2>"$GBPF_RUNTIME_DIR/trace.log" 3>&- &
	tracer=$!
	eventually grep -q Tracing "$GBPF_RUNTIME_DIR/trace.log"
	kill -STOP "$tracer"
	echo exit >&"$in"
	kill -9 "$tracer"
	eventually has_exited "$pid"
	GBPF_PATIENCE=1000 start --name traced
	tell load "spin 1 5 32 1 1"
	gbpf trace smmap --of traced >/dev/null 2>"$GBPF_RUNTIME_DIR/trace.log" 3>&- &
	tracer=$!
	pids+=("$tracer")
	eventually grep -q Tracing "$GBPF_RUNTIME_DIR/trace.log"
	kill -STOP "$tracer"
	echo exit >&"$in"
	kill -9 "${pids[1]}"
	eventually has_exited "$pid"
	kill -9 "$tracer"
}

@test "usage" {
	run -2 --separate-stderr gbpf trace smmap --of traced -- true
	[[ "$stderr" == *"--of names running programs, and 'true' would be started"* ]]
	run -2 --separate-stderr gbpf trace smmap true
	[[ "$stderr" == *"unexpected argument 'true'"* ]]
	run -2 --separate-stderr gbpf trace -- true
	[[ "$stderr" == *"the name of a tool is missing"* ]]
	run -2 --separate-stderr gbpf trace smmap --
	[[ "$stderr" == *"--of is missing"* ]]
	run -5 --separate-stderr gbpf trace smmapp -- true
}
