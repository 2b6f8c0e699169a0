#!/usr/bin/env bats
# Programs inside kernels of running programs, on the soft GPU: what is counted is what was launched, and the programs'
# results are their own.

load helpers
load talk

# shows MAP KEY VALUE: gbpfd shows the value, once the program has copied it.
is() { [ "$(value "$1" "$2")" = "$3" ]; }
shows() { eventually is "$@"; }


@test "every block of a program started later is counted, once" {
	begin
	attach count_blocks
	start
	tell load "launch 3 10" "launch 1 1"
	shows blocks 0 31
	shows blocks 1 $((3 * 45))
	has_kernels 1
}

@test "a tool sees the first launch of a kernel, also if another tool came before it" {
	begin
	attach count_blocks
	start
	tell load
	gbpf --quiet probe attach --budget none "$BUILD/count_warps.bpf.o" --to "$pid"
	tell "launch 3 10"
	shows blocks 0 30
}

@test "a running program is probed, and no longer after detach" {
	begin
	start
	tell load "launch 2 4"
	attach count_blocks --to "$pid"
	shows blocks 0 0
	tell "launch 1 4" # from now on the kernel is known
	has_kernels 1
	local before=$(value blocks 0)
	tell "launch 5 8"
	shows blocks 0 $((before + 40))
	gbpf probe detach "$id"
	tell "launch 5 8"
	attach count_blocks --to "$pid"
	shows blocks 0 0
}

@test "warps enter, and threads leave, as many as there are" {
	begin
	attach count_warps
	start
	tell load "launch 2 5"
	shows warps 0 $((2 * 5 * 3))
	shows warps 1 $((2 * 5 * 96))
}

@test "addresses of maps are in the text or the table, and only text without them is cached" {
	export GBPF_CACHE=on GBPF_CACHE_DIR=$BATS_TEST_TMPDIR
	local where compiled=
	begin
	for where in auto text table else; do
		GBPF_PROBE_ADDRESSES=$where start
		attach count_warps --to "$pid"
		tell load "launch 2 5"
		shows warps 0 $((2 * 5 * 3))
		shows warps 1 $((2 * 5 * 96))
		compiled+=$(find "$GBPF_CACHE_DIR" -name 'ptx-*' | wc -l)
	done
	[ "$compiled" = 0011 ]
}

@test "a hash table of the GPU counts each key exactly" {
	begin
	attach count_keys
	start
	tell load "launch 4 50"
	for warp in 0 1 2; do
		shows keys $warp 200
		shows keys $((100 + warp)) $((200 * 31 * 16))
	done
	[ -z "$(value keys 3)" ]
	run -0 gbpf map get keys 101 --probe "$id"
	[[ "$output" == *99200* ]]
	run -5 gbpf map get keys 7 --probe "$id"
	run -2 gbpf map set keys 7 1 --probe "$id"
}

@test "each block and each thread has a value of its own" {
	begin
	attach count_each
	start
	tell load "launch 2 10" # 10 blocks of 96 threads
	each() {
		gbpf map dump "$1" --probe "$id" --json | python3 -c '
import json, sys
d = json.load(sys.stdin)
print("equal" if [e["value"] for e in d["entries"]] == eval(sys.argv[1]) else "different", d.get("dropped", 0))' "$2"
	}
	blocks_are() { [ "$(each of_block "[6] * 8")" = "equal 12" ]; }
	threads_are() { [ "$(each of_thread "[2 * (t % 32) for t in range(800)]")" = "equal 320" ]; }
	eventually blocks_are
	eventually threads_are
	run -0 gbpf map get of_block 3 --probe "$id"
	[[ "$output" == *6* ]]
	run -0 gbpf map dump of_block --probe "$id"
	[[ "$output" == *12* ]] # and says that look-ups found no room
}

@test "lines that programs print are shown by probe log" {
	begin
	attach print_blocks
	start
	tell load "launch 1 7"
	texts() { gbpf probe log "$1" --json | python3 -c '
import json, sys
for l in sorted(json.load(sys.stdin)["lines"], key=lambda l: (l["block"], l["warp"], l["lane"])):
    print(l["pid"], l["program"], l["block"], l["warp"], l["lane"], l["text"], sep="|")'; }
	shown() { [ "$(texts "$id" | wc -l)" = 36 ]; }
	eventually shown
	local lines
	mapfile -t lines < <(texts print_blocks)
	[ "${lines[0]}" = "$pid|probed|0|0|0|block 0 of 7, -1 or ff%" ]
	[ "${lines[1]}" = "$pid|probed|0|1|0|lane 00" ]
	[ "${lines[32]}" = "$pid|probed|0|1|31|lane 31" ]
	[ "${lines[33]}" = "$pid|probed|3|0|0|block 3 of 7, -1 or ff%" ]
	mapfile -t lines < <(printf '%s\n' "${lines[@]:34}" | sort)
	[ "${lines[0]}" = "$pid|probed|6|0|0|block 6 of 7, -1 or ff%" ]
	[ "${lines[1]}" = "$pid|probed|6|0|0|the last block" ]
	gbpf probe log -f "$id" >"$BATS_TEST_TMPDIR/log" 3>&- &
	local follower=$!
	follows() { [ "$(wc -l <"$BATS_TEST_TMPDIR/log")" = "$1" ]; }
	eventually follows 36
	named() { gbpf probe log print_blocks --json | grep -q '"kernel_name": *"scale"'; }
	eventually named # gbpfd learns names of kernels a little later than lines
	tell "launch 1 1"
	eventually follows $((36 + 33))
	grep -qE "^[0-9]+\.[0-9]{9} $pid probed kernel scale block 0 warp 1 lane 31: lane 31$" "$BATS_TEST_TMPDIR/log"
	kill "$follower"
	wait "$follower" || true
	run -5 gbpf probe log nobody
	attach count_blocks
	run -2 gbpf probe log "$id"
	[[ "$output" == *"prints nothing"* ]]
}

@test "lines whose formats are on the stack are shown by probe log" {
	begin
	attach print_stack
	start
	tell load "launch 1 7"
	texts() { gbpf probe log "$id" --json | python3 -c '
import json, sys
for l in sorted(json.load(sys.stdin)["lines"], key=lambda l: (l["block"], l["warp"], l["lane"], l["text"])):
    print(l["block"], l["warp"], l["lane"], l["text"], sep="|")'; }
	shown() { [ "$(texts | wc -l)" = 36 ]; }
	eventually shown
	local lines
	mapfile -t lines < <(texts)
	[ "${lines[0]}" = "0|0|0|block 0 of 7, or ff%" ]
	[ "${lines[1]}" = "0|1|0|lane 00" ]
	[ "${lines[32]}" = "0|1|31|lane 31" ]
	[ "${lines[33]}" = "3|0|0|block 3 of 7, or ff%" ]
	[ "${lines[34]}" = "6|0|0|block 6 of 7, or ff%" ]
	[ "${lines[35]}" = "6|0|0|the last block" ]
	# an object that gbpfd had before, and those of an earlier gbpfd
	attach print_stack
	tell "launch 1 1"
	prints_of() { texts | grep -q "^0|0|0|block 0 of $1, or ff%$"; }
	eventually prints_of 1
	kill -9 "${pids[1]}"
	tell "launch 1 2"
	start_daemon
	eventually prints_of 2
	start
	tell load "launch 1 4"
	eventually prints_of 4
}

@test "lines whose formats are on the stack are shown of machine code, and calls that no path reaches are allowed" {
	begin
	attach print_entry
	start
	tell code "launch 1 7"
	lines_of() { gbpf probe log "$id" | sed -n 's/.*: \(block . of .\)$/\1/p' | sort | tr '\n' ';'; }
	shown() { [ "$(lines_of)" = "block 0 of 7;block 3 of 7;block 6 of 7;" ]; }
	eventually shown
}

@test "a full hash table drops keys, and says how many" {
	begin
	attach count_full
	start
	tell load "launch 1 100"
	full() { gbpf map dump few --probe "$id" --json | grep -q '"dropped": *84'; }
	eventually full
	[ "$(gbpf map dump few --probe "$id" --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["entries"]))')" = 16 ]
	run -0 gbpf map dump few --probe "$id"
	[[ "$output" == *"84 insertions found no room"* ]]
}

@test "hash tables of several contexts are added key by key" {
	begin
	attach count_keys
	start
	tell load "launch 1 3" context "launch 1 3"
	shows keys 0 13
	shows keys 102 $((13 * 31 * 16))
}

@test "the template of a tool counts blocks, and verbs know tools by their names" {
	gbpf --quiet policy new "$BATS_TEST_TMPDIR/look" -t probe
	gbpf --quiet policy build "$BATS_TEST_TMPDIR/look"
	begin
	run -5 gbpf probe detach look
	[[ "$output" == *"no tool is called 'look'"* ]]
	id=$(gbpf probe attach --budget none "$BATS_TEST_TMPDIR/look/look.bpf.o" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
	start
	tell load "launch 3 10"
	all_blocks() { gbpf map dump blocks --probe look --json | python3 -c '
import json, sys
assert sum(e["value"]["blocks"] for e in json.load(sys.stdin)["entries"]) == 30'; }
	eventually all_blocks
	gbpf probe attach --budget none "$BATS_TEST_TMPDIR/look/look.bpf.o" --kernel none
	run -2 gbpf probe detach look
	[[ "$output" == *"several tools are called 'look'"* ]]
	gbpf probe detach "$id"
	gbpf probe swap look "$BUILD/count_blocks.bpf.o"
	gbpf probe detach count_blocks
	eventually shows 'd["probes"] == []' gbpf probe ls
}

@test "a tool observes what is submitted and retires, and decides nothing" {
	begin
	attach count_submits
	start
	tell load "launch 3 10" "launch 1 1" "graph 2"
	shows blocks 0 33 # a launch of a graph is no submission
	shows submits 0 4
	shows submits 1 31
	shows submits 2 $((4 * 96))
	shows submits 3 0
	retired() { [ "$(value retires 0)" -ge 4 ]; }
	eventually retired
	tell unload code "launch 2 5"
	shows blocks 0 43
	shows submits 0 6
	gbpf probe detach "$id"
	tell "launch 2 5"
}

@test "a program reads arguments of the kernel, and one that it has not is refused" {
	begin
	attach wrong_args
	start
	tell load "launch 1 1"
	tool_has 'p["refused"] == 1'
	says "no parameter of the kernel contains the 4 bytes at offset 16"
	gbpf probe detach "$id"
	attach count_args
	has_kernels 1
	tell "launch 3 2" "launch 5 4"
	shows args $((2 * 96 - 1)) 6
	shows args $((4 * 96 - 1)) 20
	shows args 1000000 26
}

@test "an entry stub reads arguments of the kernel, and refuses one that it has not" {
	begin
	attach wrong_args
	start
	tell code "launch 1 1"
	tool_has 'p["refused"] == 1'
	says "no parameter of the kernel contains the 4 bytes at offset 16"
	gbpf probe detach "$id"
	attach count_args
	has_kernels 1
	tell "launch 3 2" "launch 5 4"
	shows args $((2 * 96 - 1)) 6
	shows args $((4 * 96 - 1)) 20
	shows args 1000000 26
}

@test "tools share a kernel, and each has its own values" {
	begin
	attach count_warps
	local warps=$id
	attach count_blocks
	local blocks=$id
	start
	tell load "launch 2 5"
	shows blocks 0 10
	id=$warps
	shows warps 0 30
	gbpf probe detach "$blocks"
	tell "launch 1 5"
	shows warps 0 45
}

@test "a swapped tool replaces the old one from the next launch on" {
	begin
	attach count_blocks
	start
	tell load "launch 1 6"
	shows blocks 0 6
	id=$(gbpf probe swap "$id" "$BUILD/count_warps.bpf.o" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
	has_kernels 1
	tell "launch 1 6"
	shows warps 0 18
	eventually shows 'len(d["probes"]) == 1' gbpf probe ls
}

@test "a kernel that uses its module's variables sees the program's" {
	begin
	attach count_blocks
	start
	tell load "variables 4" "variables 3"
	shows blocks 0 14
}

@test "kernels of libraries are probed" {
	begin
	attach count_blocks
	start
	tell library
	shows blocks 0 15
}

@test "machine code without PTX is probed at its entry, before and while it runs" {
	begin
	attach count_blocks
	start
	tell code "launch 3 10" "launch 1 1"
	shows blocks 0 31
	shows blocks 1 $((3 * 45))
	has_kernels 1
	gbpf probe detach "$id"
	tell "launch 2 5"
	attach count_blocks --to "$pid"
	tell "launch 1 4" # from now on the kernel is known
	has_kernels 1
	local before=$(value blocks 0)
	tell "launch 5 8"
	shows blocks 0 $((before + 40))
	tell unload
	has_kernels 0
}

@test "maps in host memory are found by entry stubs, and by forms with addresses in their text or in a table" {
	begin
	attach pin_blocks
	start
	tell code "launch 3 10" "launch 1 1"
	shows blocks 0 31
	shows blocks 1 $((3 * 45))
	forms_are "0 1 0"
	gbpf probe detach "$id"
	for where in text table; do
		attach count_pinned
		GBPF_PROBE_ADDRESSES=$where start
		tell load "launch 3 10"
		of_pid() { [ "$(gbpf map dump blocks --probe "$id" --tenant "$pid" --json | python3 -c '
import json, sys
print(*(e["value"] for e in json.load(sys.stdin)["entries"]))')" = "30 135" ]; }
		eventually of_pid
		gbpf probe detach "$id"
	done
}

@test "machine code that has its PTX stored is probed by that while it runs, also where it uses variables" {
	begin
	start
	tell stored "launch 3 10" "variables 4"
	attach count_warps --to "$pid" # also at exits, where there is no stub
	local warps=$id
	attach count_blocks --to "$pid"
	tell "launch 1 1" "variables 1" # from now on the kernels are known
	has_kernels 2
	local blocks=$(value blocks 0) id=$warps
	has_kernels 1
	local entries=$(value warps 0) exits=$(value warps 1)
	tell "launch 2 5" "variables 3"
	shows warps 0 $((entries + 2 * 5 * 3))
	shows warps 1 $((exits + 2 * 5 * 96))
	id=$((warps + 1))
	shows blocks 0 $((blocks + 2 * 5 + 3 * 2))
}

@test "delays of launches of machine code are measured" {
	begin
	start
	gbpf trace launchlate --of "$pid" --json >"$GBPF_RUNTIME_DIR/trace.json" 2>"$GBPF_RUNTIME_DIR/trace.log" 3>&- &
	local tracer=$!
	pids+=("$tracer")
	eventually grep -q Tracing "$GBPF_RUNTIME_DIR/trace.log"
	tell code "launch 3 10"
	kill -INT "$tracer"
	wait "$tracer"
	python3 -c '
import json, sys
f = json.load(open(sys.argv[1]))["figures"]
assert f["launches"] == f["delays"]["count"] == 3 and f["delays"]["max_ns"] < 10 ** 10, f' "$GBPF_RUNTIME_DIR/trace.json"
}

@test "machine code that was prepared and has its PTX stored is probed while it runs, with its pointers and variables" {
	begin
	start
	tell prepared "inside 3"
	attach count_blocks --to "$pid"
	tell "inside 1" # from now on the kernel is known
	has_kernels 1
	forms_are "1 0 0"
	local before=$(value blocks 0)
	tell "inside 4"
	shows blocks 0 $((before + 4))
}

@test "what an entry stub cannot run is refused, and the kernel runs its own code" {
	begin
	attach count_warps # also at exits
	start
	tell code "launch 2 5"
	tool_has 'p["refused"] == 1'
	says "an entry stub runs at the beginning of blocks and warps, and reports ends of blocks"
	shows warps 0 0
}

@test "ends of blocks of machine code are reported late, each once, also of launches at the same time" {
	begin --sms 2
	attach count_ends
	start
	tell code "launch 3 10" "launch 1 1"
	shows blocks 0 31
	shows blocks 1 $((3 * 45))
	tell "launch 1 300" # more than are resident: blocks follow each other in their places
	shows blocks 0 331
	shows blocks 1 $((3 * 45 + 299 * 150))
	tell "threads 40 4"
	shows blocks 0 $((331 + 40 * 4 * 3))
	shows blocks 1 $((3 * 45 + 299 * 150 + 40 * 4 * 3))
	gbpf probe detach "$id"
	tell "launch 2 5"
	attach count_ends --to "$pid"
	tell "launch 1 4"
	has_kernels 1
	local before=$(value blocks 0)
	tell "launch 5 8"
	shows blocks 0 $((before + 40))
}

@test "graphs run machine code without late ends of blocks, and say so" {
	begin
	attach count_ends
	start
	tell code "launch 1 4" "graph 3"
	says "in graphs nothing reports the last blocks of machine code"
	shows blocks 0 4
}

@test "blocktime measures machine code by upper bounds" {
	begin
	start
	gbpf trace blocktime --of "$pid" --json >"$GBPF_RUNTIME_DIR/trace.json" 2>"$GBPF_RUNTIME_DIR/trace.log" 3>&- &
	local tracer=$!
	pids+=("$tracer")
	eventually grep -q Tracing "$GBPF_RUNTIME_DIR/trace.log"
	tell code "launch 3 10"
	kill -INT "$tracer"
	wait "$tracer"
	python3 -c '
import json, sys
f = json.load(open(sys.argv[1]))["figures"]
assert f["blocks"]["count"] == f["late"] == 30 and f["lost"] == 0, f' "$GBPF_RUNTIME_DIR/trace.json"
}

# traced TOOL LOAD [MESSAGE]: prints the figures of a tool for 3 launches of a kernel that was loaded so, after the message; fails as the
# trace does.
traced() {
	local tracer status=0
	gbpf trace "$1" --of "$pid" --json >"$GBPF_RUNTIME_DIR/trace.json" 2>"$GBPF_RUNTIME_DIR/trace.log" 3>&- &
	tracer=$!
	pids+=("$tracer")
	eventually grep -q Tracing "$GBPF_RUNTIME_DIR/trace.log"
	tell "$2" "launch 3 10"
	${3:+eventually grep -q "$3" "$GBPF_RUNTIME_DIR/trace.log"}
	kill -INT "$tracer"
	wait "$tracer" || status=$?
	tell unload
	rm "$GBPF_RUNTIME_DIR/trace.log"
	cat "$GBPF_RUNTIME_DIR/trace.json"
	return $status
}

@test "where blocks run, their sizes and arguments are the same of machine code as of PTX" {
	begin
	start
	local tool
	for tool in smmap threadhist args; do
		traced $tool load >"$GBPF_RUNTIME_DIR/ptx"
		traced $tool code >"$GBPF_RUNTIME_DIR/code"
		python3 -c '
import json, sys
def figures(path):
	d = json.load(open(path))
	assert d["kernels"] == 1 and d["refused"] == 0, d
	return d["figures"]
tool, ptx, code = sys.argv[1], figures(sys.argv[2]), figures(sys.argv[3])
if tool == "args": # the address is one of another run
	for f in (ptx, code):
		[address], [n] = (p["values"] for p in f["kernels"][0]["params"])
		assert address.pop("value") and n == {"value": 959, "count": 3}, f
	assert code["launches"] == 3 and [(p["index"], p["bytes"]) for p in code["kernels"][0]["params"]] == [(0, 8), (1, 4)], code
elif tool == "smmap": # blocks run where there is room; ends of blocks of machine code are not seen
	assert (ptx["weighed_by"], ptx["ended"], ptx["without_end"], ptx["in_part"]) == ("time", 30, 0, 0), ptx
	assert (code["weighed_by"], code["ended"], code["without_end"], code["in_part"]) == ("blocks", 0, 30, 1), code
	assert "runs without block_exit: " in code["why_in_part"], code
	assert sum(s["lanes"] for s in code["sms"]) == 3 * 10 * 96, code
	for f in (ptx, code):
		for figure in ("used", "fewest", "most", "imbalance", "sms", "weighed_by", "ended", "busy_ns", "without_end",
			"in_part", "why_in_part"):
			f.pop(figure)
assert ptx == code, (ptx, code)' $tool "$GBPF_RUNTIME_DIR/ptx" "$GBPF_RUNTIME_DIR/code"
	done
}

@test "each tool that observes machine code by its list runs there, and one that needs exits is refused" {
	begin
	start
	local tool
	gbpf trace --json | python3 -c '
import json, sys
print(*(t["name"] for t in json.load(sys.stdin)["tools"] if "machine code" in t["forms"]))' >"$GBPF_RUNTIME_DIR/tools"
	for tool in $(<"$GBPF_RUNTIME_DIR/tools"); do
		traced "$tool" code
	done
	grep -q args "$GBPF_RUNTIME_DIR/tools"
	run -4 traced kernelretsnoop code "1 kernel cannot run the tool"
}

@test "a copy of machine code uses the variables of the program's module" {
	begin
	attach count_blocks
	start
	tell counts "totals 4" "totals 3" # from the first launch on
	has_kernels 1
	shows blocks 0 14
	gbpf probe detach "$id"
	tell "totals 2"
	attach count_blocks
	has_kernels 1
	tell "totals 5"
	shows blocks 0 10
	tell unload counts "totals 1"
	shows blocks 0 12
}

@test "a copy of machine code must not have constants of its own" {
	begin
	attach count_blocks
	start
	tell both "launch 2 5" "variables 4" "variables 3"
	tool_has 'p["refused"] == 2'
	says "own constants of the module"
	shows blocks 0 0
}

@test "with --probes, calls through pointers and variables of bodies are probed while the program runs" {
	begin
	start
	tell own "inside 3"
	attach count_blocks --to "$pid"
	tell "inside 1"
	tool_has 'p["refused"] == 1'
	says "gbpf run --probes"
	start --probes
	tell own "inside 3"
	attach count_blocks --to "$pid"
	tell "inside 1" # from now on the kernel is known
	has_kernels 1
	local before=$(value blocks 0)
	tell "inside 5"
	shows blocks 0 $((before + 5))
	gbpf probe detach "$id"
	tell "inside 2" unload
}

@test "values of a context that has ended are kept" {
	begin
	attach count_blocks
	start
	tell load "launch 1 3" context "launch 1 3"
	shows blocks 0 13
}

@test "a module is unloaded and loaded again" {
	begin
	attach count_blocks
	start
	tell load "launch 1 3" unload load "launch 1 3" unload
	shows blocks 0 6
	has_kernels 0
}

@test "a captured kernel is probed in each launch of its graph" {
	begin
	attach count_blocks
	start
	tell load "graph 3"
	shows blocks 0 3
}

@test "a kernel that was captured first is probed in its first launch" {
	begin
	attach count_blocks
	start
	tell load "graph 0" "launch 3 10"
	shows blocks 0 30
}

@test "attach, swap and detach under load change no result" {
	begin
	start
	tell load
	echo "threads 300 4" >&"$in"
	for i in 1 2 3 4; do
		attach count_blocks
		id=$(gbpf probe swap "$id" "$BUILD/count_warps.bpf.o" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
		gbpf probe detach "$id"
	done
	local answer
	read -r -t "$EVENTUALLY_SECONDS" -u "$out" answer
	[ "$answer" = ok ]
	tell "launch 1 1"
	eventually shows 'd["probes"] == []' gbpf probe ls
}

# device_kib: memory of the soft GPU that is taken.
device_kib() { gbpf device --soft --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["gpus"][0]["memory_used_bytes"] >> 10)'; }
device_has() { [ "$(device_kib)" -le "$1" ]; } # less if forms were about to leave when it was read

@test "cycles of attach, swap and detach under load leave nothing in the program, the GPU and gbpfd" {
	local left=() taken=()
	begin
	GLIBC_TUNABLES=glibc.malloc.tcache_count=0 start # what threads keep for later is no growth
	tell load churn
	for period in 0 1 2; do
		tell "keep 1"
		left+=("$(python3 "$BATS_TEST_DIRNAME/probe_cycles.py" 14 "$BUILD" "$pid" "${pids[1]}")")
		tell stop
		((period == 0)) || eventually device_has "${taken[0]}" # the last forms have left
		tell remember
		taken+=("$(device_kib)")
	done
	echo "left ${left[*]}, of the GPU ${taken[*]}"
	tell "growth 500" "launch 1 1"
	eventually device_has "${taken[0]}"
	[ "${left[0]% *}" = "${left[2]% *}" ]
	((${left[2]##* } <= ${left[0]##* } + 64))
}

@test "a forked child and the end of the program" {
	begin
	attach count_blocks
	start
	tell load "launch 1 3" fork "launch 1 3"
	shows blocks 0 6
	echo exit >&"$in"
	wait "${pids[-1]}"
	tool_has 'p["tenants"] == []'
}

# counts_of ID VALUE: of blocks.
counts_of() {
	id=$1
	is blocks 0 "$2"
}

@test "one object is attached several times, with maps of its own each time" {
	begin
	for i in 1 2 3; do
		attach count_blocks
		[ "$id" = $i ]
	done
	start
	tell load "launch 2 5"
	for i in 1 2 3; do eventually counts_of $i 10; done
	gbpf probe detach 2
	tell unload code "launch 3 5"
	for i in 1 3; do eventually counts_of $i 25; done
	has_kernels 1
	tool_has 'p["refused"] == 0'
}

# ends_gbpfd: kills it; programs continue.
ends_gbpfd() {
	kill -9 "${pids[1]}"
	wait "${pids[1]}" || true
}

# finds_gbpfd [OPTION...]: starts it again; the program has connected to it.
finds_gbpfd() {
	start_daemon "$@"
	pids[1]=${pids[-1]}
	eventually tenant "$pid" True
}

@test "a killed gbpfd takes no program with it, and tools count on until they are detached" {
	begin
	attach count_submits
	start
	tell load "launch 1 3"
	for round in 1 2; do
		ends_gbpfd
		tell "launch 2 3"
		finds_gbpfd
		has_kernels 1
		shows blocks 0 $((3 + round * 6 + (round - 1) * 3))
		shows submits 0 $((1 + round * 2 + (round - 1)))
		tell "launch 1 3"
		shows blocks 0 $((3 + round * 9))
		shows submits 0 $((1 + round * 3))
	done
	gbpf probe detach "$id"
	ends_gbpfd
	finds_gbpfd
	eventually shows 'd["probes"] == []' gbpf probe ls
	tell "launch 1 3"
}

@test "tools that the next gbpfd does not know end, also where its tools have their numbers" {
	begin
	attach count_blocks
	start
	tell load "launch 1 3"
	ends_gbpfd
	rm -r "$GBPF_STATE_DIR/tools"
	tell "launch 2 3"
	finds_gbpfd
	attach count_blocks # the same image
	[ "$id" = 1 ]
	shows blocks 0 0
	tell "launch 1 3"
	has_kernels 1
	local before=$(value blocks 0)
	tell "launch 2 3"
	shows blocks 0 $((before + 6))
}

# counts_stopped COMMAND: of the kernel that the program loads with it.
counts_stopped() {
	begin
	gbpf policy swap "$POLICIES/lc_first.bpf.o"
	start --class batch
	if [ "$1" != code ]; then
		gbpf --quiet probe attach --budget none "$BUILD/count_ends.bpf.o" --to "$pid" # the form has more shared memory
	fi
	attach count_submits --to "$pid"
	tell "$1"
	gbpf run --device soft --class latency -- "$SAMPLES/lcserve" --rate 300 --requests 100000 >/dev/null 2>&1 3>&- &
	pids+=($!)
	interrupted() {
		tell "launch 10 2000"
		launched=$((launched + 20000))
		[ "$(interruptions)" -ge 3 ]
	}
	launched=0
	eventually interrupted
	shows blocks 0 "$launched"
	shows submits 0 $((launched / 2000))
	shows submits 1 "$launched"
	shows submits 3 0
}

@test "launches that are stopped between blocks count each block once" {
	counts_stopped load
}

@test "launches of PTX for an architecture above the device's are stopped between blocks and count each block once" {
	counts_stopped "target sm_100a"
}

@test "launches of machine code that are stopped between blocks count each block once" {
	counts_stopped code
}

# accesses: what the map own of count_scratch must have led to: lanes of threads that ran, and accesses.
finds_own() {
	shows found 1 $((3 * $1))
	shows found 3 "$2"
	[ "$(value found 0)" = 0 ]
	[ "$(value found 2)" = 0 ]
}

@test "each warp has its own values in shared memory, which are 0 when its block begins" {
	begin --check
	attach count_scratch
	start
	tell load "launch 3 10"
	finds_own $((30 * 96)) $((2 * 3 * (10 * 96 - 1)))
	tell "config 4" "graph 3" "launch 2 4"
	has_kernels 1
	[ "$(value found 2)" = 0 ]
	run -2 gbpf map dump own --probe "$id"
	[[ "$output" == *"map 'own' is in shared memory of blocks and ends with each"* ]]
	gbpf map list --probe "$id" | grep -q 'own .*warp_scratch .*each warp, in shared memory'
}

@test "a kernel gets no more shared memory by a tool than it may have" {
	begin
	attach count_ends
	start
	tell load "launch 1 2" beyond
	has_kernels 1
	attach count_scratch
	tell "launch 1 2"
	has_kernels 1
	tell beyond
	shows found 0 0
	[ "$(value found 2)" = 0 ]
	[ "$(value found 1)" -ge $((3 * 3 * 32)) ] # of the launches that the driver took
	tool_has 'p["falls_back"] == 0'
}

@test "machine code alone has no shared memory for a tool" {
	begin
	attach count_scratch
	start
	tell code "launch 1 2"
	tool_has 'p["refused"] == 1'
	says "an entry stub has no shared memory for its WARP_SCRATCH"
}
