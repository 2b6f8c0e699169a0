# gbpf probe: tools in a program that runs, and their maps.
load helper

setup() {
	cli_setup
	test_policies .
}

start_batch() {
	"$GBPF" run --device soft --name "${1:-batch}" -- "$GBPF_PREFIX/lib/gbpf/samples/batch" >"${1:-batch}.out" 2>&1 &
	eventually grep -q ready "${1:-batch}.out"
}

start_gbpfd() { "$GBPF" run --device soft true; }

# Blocks that the tool has counted so far.
count() { "$GBPF" map get counts 0 --probe "$1" --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["entries"][0]["value"])'; }
count_above() { [ "$(count "$1")" -gt "$2" ]; }

@test "a tool is attached to a running program, counts, and is detached" {
	start_batch
	run --separate-stderr "$GBPF" probe attach --wait blocks.bpf.o
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$output" = "attached blocks as tool 1: 1 kernel of 1 program" ]
	eventually count_above 1 0
	eventually count_above 1 "$(count 1)"
	eventually prints '\A.*\n *1 +blocks +attached +all +\* .* 1 +1 +ptx 1 +0 +0 +0 +[-0-9.%]+ +5% +[-0-9.%]+ +- +-$' "$GBPF" probe ls
	eventually shows 'd["schema"] == "gbpf.probe.ls/1" and d["probes"][0]["tenants"][0]["name"] == "batch"' "$GBPF" probe ls
	eventually shows 'd["probes"][0]["forms"] == {"ptx": 1, "stub": 0, "brackets": 0}' "$GBPF" probe ls
	run --separate-stderr "$GBPF" probe detach 1
	echo "$output $stderr"
	[[ "$output" == "detached tool 1 (blocks)"* ]] # on a busy machine the program may answer later than in 1 s
	none() { run --separate-stderr "$GBPF" probe ls && [ -z "$output" ]; }
	eventually none
	[[ "$stderr" == "There are no tools."* ]]
	! grep -q wrong batch.out
}

@test "maps of a tool are found by its number and by name, and copied from the GPU" {
	start_batch
	"$GBPF" -q probe attach --wait blocks.bpf.o
	eventually count_above 1 0
	run --separate-stderr "$GBPF" map list --probe 1
	[[ "$output" == *"counts "*"each program, on the GPU"* ]]
	run "$GBPF" map dump counts --json
	json 'd["scope"] == "device" and d["policy"] == "blocks" and d["entries"][0]["value"] > 0'
	run "$GBPF" map get total --probe 1 --json
	json 'd["variable"] == "total" and d["entries"][0]["value"] > 0'
	run --separate-stderr "$GBPF" map watch counts --interval 20ms --count 3 --json
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 3 ]
	run --separate-stderr "$GBPF" map set counts 0 1 --tenant 0
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"inside kernels only"* ]]
	"$GBPF" -q probe attach warps.bpf.o
	run --separate-stderr "$GBPF" map dump counts
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"tools 1, 2 have a map 'counts'"* ]]
	run --separate-stderr "$GBPF" map dump accounts
	[ "$status" -eq 0 ]
	run --separate-stderr "$GBPF" map dump counts --probe 9
	[ "$status" -eq 5 ]
}

@test "a tool is swapped while the program runs" {
	start_batch
	"$GBPF" -q probe attach --wait blocks.bpf.o --kernel '*'
	run --separate-stderr "$GBPF" probe swap --wait 1 blocks.bpf.o
	echo "$output"
	[ "$output" = "swapped blocks as tool 2: 1 kernel of 1 program" ]
	eventually count_above 2 0
	eventually shows '[p["id"] for p in d["probes"]] == [2]' "$GBPF" probe ls
	run --separate-stderr "$GBPF" probe swap 1 blocks.bpf.o
	[ "$status" -eq 5 ]
	[[ "$stderr" == *"there is no tool 1"* ]]
}

@test "programs that start later get the tools that match" {
	start_gbpfd
	"$GBPF" -q probe attach blocks.bpf.o
	start_batch
	eventually count_above 1 0
	run --separate-stderr "$GBPF" probe attach blocks.bpf.o --to nothing
	[ "$status" -eq 5 ]
	"$GBPF" -q probe attach warps.bpf.o --to batch
	"$GBPF" -q probe attach warps.bpf.o --to 0
	start_batch other
	eventually shows '[sorted(t["name"] for t in p["tenants"]) for p in d["probes"]] == [["batch", "other"], ["batch"], ["batch"]]' \
		"$GBPF" probe ls
	run --separate-stderr "$GBPF" probe detach --all
	# Tool 3 ends with the session of tenant 0. Shows whether that has happened.
	echo "$status: $output $stderr"
	"$GBPF" events
	cat batch.out other.out
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" == "detached tool 1 (blocks)"* ]]
	[[ "${lines[1]}" == "detached tool 2 (warps)"* ]]
	[[ "${lines[2]}" == "detached tool 3 (warps)"* ]]
	[ "${#lines[@]}" -eq 3 ]
}

@test "policies are no tools, and tools no policies" {
	start_gbpfd
	run --separate-stderr "$GBPF" probe attach good.bpf.o
	[ "$status" -eq 4 ]
	[[ "$stderr" == *"no programs inside kernels"*"gbpf policy load"* ]]
	run --separate-stderr "$GBPF" policy swap blocks.bpf.o
	[ "$status" -eq 4 ]
	[[ "$stderr" == *"programs inside kernels"*"gbpf probe attach"* ]]
	run --separate-stderr "$GBPF" probe detach
	[ "$status" -eq 2 ]
	run --separate-stderr "$GBPF" probe detach 1 --all
	[ "$status" -eq 2 ]
	run --separate-stderr "$GBPF" probe detach 7
	[ "$status" -eq 5 ]
	run "$GBPF" probe attach blocks.bpf.o --kernel '' --json
	json 'd["error"]["exit"] == 2'
	run "$GBPF" probe detach --all --json
	json 'd["detached"] == []'
}

@test "attaching warns of a word to which every warp adds" {
	start_gbpfd
	run --separate-stderr "$GBPF" probe attach warps.bpf.o
	echo "$stderr"
	[ "$status" -eq 0 ]
	[[ "$stderr" == "warning: "*"warps.bpf.c:"*": program count: every warp adds to the same word of map 'counts'"*"SM_ARRAY"* ]]
	run --separate-stderr "$GBPF" probe attach blocks.bpf.o
	[ -z "$stderr" ]
}

@test "a watched map ends with its tool" {
	start_batch
	"$GBPF" -q probe attach --wait blocks.bpf.o
	"$GBPF" map watch counts --interval 20ms >watch.out 2>watch.err &
	local pid=$!
	eventually test -s watch.out
	"$GBPF" -q probe detach 1
	wait "$pid"
	grep -q "the tool was detached" watch.err
}

@test "coverage lists kernels with their forms and shares, without a tool" {
	run --separate-stderr "$GBPF" probe coverage
	[ "$status" -eq 3 ]
	start_batch
	local head='\A *PID +PROGRAM +KERNEL +FORM +LAUNCHES +IN GRAPHS +SHARE +GPU TIME +WHY\n'
	eventually prints "$head"'.* batch .* ptx .*100\.0 %.* -\n(.*\n)*[0-9]+ batch: ptx 100\.0 % of launches.*\n\Z' "$GBPF" probe coverage batch
	eventually shows 'd["schema"] == "gbpf.probe.coverage/1" and d["tenants"][0]["forms"]["ptx"]["share"] == 1' "$GBPF" probe coverage
	run --separate-stderr "$GBPF" probe coverage none
	[ "$status" -eq 5 ]
	[[ "$stderr" == *"no program 'none' runs under gBPF"* ]]
}

@test "waits at barriers are each warp's own, also of blocks that share a multiprocessor" {
	"$GBPF" run --device soft --name reduction -- "$GBPF_PREFIX/lib/gbpf/samples/kernels" --repeat 1000000 --size 4096 \
		reduction >reduction.out 2>&1 3>&- &
	eventually tenant reduction True
	run --separate-stderr "$GBPF" trace barwait --of reduction --kernel reduction --time 3s --json
	echo "$output"
	[ "$status" -eq 0 ]
	# A place that two warps had at a time would give waits that end before they begin: of days.
	json 'd["figures"]["waits"]["count"] >= 100 and d["figures"]["waits"]["max_ns"] < 60000000000'
}

@test "a tool has a budget of 5 % unless another one, or none, is given; a swap keeps it" {
	start_gbpfd
	"$GBPF" -q probe attach blocks.bpf.o
	"$GBPF" -q probe attach blocks.bpf.o --budget none
	"$GBPF" -q probe attach blocks.bpf.o --budget 2%
	eventually shows '[p["budget_ppm"] for p in d["probes"]] == [50000, 0, 20000]' "$GBPF" probe ls
	eventually prints ' none +all ' "$GBPF" probe ls
	"$GBPF" -q probe swap 3 blocks.bpf.o
	eventually shows 'sorted(p["budget_ppm"] for p in d["probes"]) == [0, 20000, 50000]' "$GBPF" probe ls
	"$GBPF" -q probe swap 1 blocks.bpf.o --budget none
	"$GBPF" -q probe swap 2 blocks.bpf.o --budget 3%
	eventually shows 'sorted(p["budget_ppm"] for p in d["probes"]) == [0, 20000, 30000]' "$GBPF" probe ls
}
