# gbpf bench probe on the soft GPU, in small: what programs count and what the workloads compute, not how long it takes.
load helper

setup() {
	cli_setup
	export TMPDIR=$cli_dir/tmp
	mkdir "$TMPDIR"
}

probe() {
	run --separate-stderr "$GBPF" --json bench probe --device soft "$@"
	echo "$output $stderr"
}

@test "bench probe: every program counts exactly what is launched" {
	probe --parts cost --rounds 2 --save out.json
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	json 'd["schema"] == "gbpf.bench.probe/1" and d["soft"] and d["complete"] and d["rounds"] == 2 and not d["wrong"]'
	json 'd["attachments"] == [] and d["cycling"] is None'
	json '({(c["row"], c["workload"]) for c in d["cost"]} == {(r, w) for r in ("warp", "block", "sampled", "lane", "empty", "timer",
		"memtrace", "retsnoop", "elsewhere", "before", "detached") for w in ("chained", "single", "large", "block")})'
	json 'all(c["pairs"] == 2 and c["without_us"] > 0 and c["with_us"] > 0 and c["ratio"] > 0 for c in d["cost"])'
	# Two rounds of all workloads, with a launch before each that is not timed.
	json 'sum(w["launches"] + 1 for w in d["workloads"].values()) == 36'
	json '{c["row"]: (c["comparisons"], c["wrong"]) for c in d["counts"]} == {r: (2, 0) for r in ("warp", "block", "sampled", "lane",
		"timer", "memtrace", "retsnoop", "elsewhere", "detached")}'
	json '(lambda blocks: {c["row"]: c["counted"] for c in d["counts"]} == {"block": blocks, "warp": 8 * blocks, "lane": 256 * blocks,
		"sampled": 2 * sum((w["threads"] // 256 + 7) // 8 * (w["launches"] + 1) for w in d["workloads"].values()), "detached": 8 * blocks,
		"timer": 64, "memtrace": 768 * blocks, "retsnoop": 256 * blocks, "elsewhere": 0})(2 * sum(w["threads"] // 256 * (w["launches"] + 1) for w in d["workloads"].values()))'
	json 'next(c for c in d["counts"] if c["row"] == "block")["counted"] > 1000'
	[ -s out.json ]
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench probe runs known kernels with programs, and their results and counts are right" {
	probe --parts samples --rows warp,block,memtrace --rounds 1
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	json 'len(d["sample_sizes"]) == 14 and sum(s["sample"] for s in d["sample_sizes"]) == 12 and d["cost"] == [] and not d["wrong"]'
	json '({(f["row"], f["workload"], f["size"]) for f in d["samples"]} == {(r, s["name"], k) for r in ("warp", "block", "memtrace")
		for s in d["sample_sizes"] for k in ("full", "block")})'
	json 'all(f["with_us"] > 0 and f["without_us"] > 0 and f["pairs"] == 1 for f in d["samples"])'
	# Three runs of each size, one of them not timed; accesses of the search for vertices are not compared.
	json '({c["row"]: (c["comparisons"], c["wrong"]) for c in d["sample_counts"]} ==
		{"warp": (28, 0), "block": (28, 0), "memtrace": (26, 0)})'
	json 'd["means"]["memtrace"]["samples"] == 12 and d["means"]["memtrace"]["goal"] == 1.5 and not d["missed"]'
	json '(lambda c: c["warp"] == 3 * sum(-(-s["threads"] // 32) for s in d["sample_sizes"]) + 3 * (8 + 4 + 8 + 8 + 2 * 8 + 8 + 4 + 4
		+ 8 + 8 + 2 + 4 + 8 + 4))({c["row"]: c["counted"] for c in d["sample_counts"]})'
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench probe mixes launches with a tool that has a budget, and counts those that run it" {
	probe --parts budget --rounds 1
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	json '[(f["row"], f["workload"]) for f in d["budgets"]] == [(r, w) for r in ("warp", "memtrace") for w in ("chained", "large")]'
	json 'all(f["goal"] == 2 and f["counted"] == f["expected"] for f in d["budgets"])'
	json 'all(f["launches"] == n and 0 <= f["probed"] <= n for f, n in zip(d["budgets"], (21, 9, 21, 9))) and not d["wrong"]'
	json 'sum(f["probed"] for f in d["budgets"]) > 0'
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench probe attaches to a program that works, and loses none of its launches" {
	probe --parts attach,cycles --attaches 4 --cycles 3
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	json 'd["cost"] == [] and [(a["kind"], a["count"]) for a in d["attachments"]] == [("compiled", 2), ("cached", 2), ("code", 4)]'
	json 'all(0 < a["first_ms"]["median"] <= a["first_ms"]["max"] <= a["running_ms"]["max"] + 1000 for a in d["attachments"])'
	json 'all(a[w]["launches"] > 0 and a[w]["longest_ms"]["max"] > 0 for a in d["attachments"] for w in ("attach", "detach", "control"))'
	json 'd["code_bytes"] > 10000 and [(f["kind"], f["count"]) for f in d["flips"]] == [("ptx", 2), ("code", 2)]'
	json 'all(0 < f[w + "_call_us"] <= f[w + "_us"] for f in d["flips"] for w in ("with", "without", "control"))'
	json 'all(f["new_call_us"] > 0 < f["known_call_us"] for f in d["flips"])'
	json '(d["cycles"] == 3 and d["cycling"]["cycles"] == 3 and d["cycling"]["launches"] > 12
		and [u["cycle"] for u in d["cycling"]["use"]] == [1, 2, 3])'
	json 'all(u["free_bytes"] > 0 and u["descriptors"] > 3 and u["daemon_descriptors"] > 3 for u in d["cycling"]["use"])'
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench probe measures the chosen rows, and prints a table" {
	run "$GBPF" bench probe --device soft --parts cost --rows warp,empty --rounds 1
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"16 K threads, chained"*"counter per warp"*"empty program"*"64 K threads, chained"*"one block"* ]]
	[[ "$output" =~ "counted 12456 of 12456, 0 of 1 comparisons differ" ]]
	[[ "$output" != *"counter per block"* ]]
	[[ "$output" != *MISSED* ]]
}

# Installs the program $1, whose source is changed by the sed script $2, in a copy of the libraries, and has that used.
change_program() {
	cp -rs "$(readlink -f "$GBPF_PREFIX")/lib/gbpf" "$cli_dir/lib"
	sed "$2" "$REPO/bench/probe/$1.bpf.c" >changed.bpf.c
	! cmp -s changed.bpf.c "$REPO/bench/probe/$1.bpf.c"
	rm "$cli_dir/lib/bench/probe/$1.bpf.o"
	clang-14 -target bpf -mcpu=v3 -g -O2 -I "$REPO/include" -c changed.bpf.c -o "$cli_dir/lib/bench/probe/$1.bpf.o"
	export GBPF_LIBDIR=$cli_dir/lib
}

@test "bench probe fails if a program counts something else than is launched" {
	change_program warp_counter 's/gdev_enter/gdev_block_enter/; s#gdev/enter#gdev/block_enter#'
	probe --parts cost --rows warp --rounds 1
	[ "$status" -eq 1 ]
	json 'd["wrong"] == ["counter per warp: counted 1557, launched 12456"]'
	probe --parts samples --samples scan --rows warp --rounds 1
	[ "$status" -eq 1 ]
	json 'd["wrong"] == ["counter per warp: counted 30, launched 240"] and [s["name"] for s in d["sample_sizes"]] == ["scan"]'
}

@test "bench probe fails if a program that is attached under load counts launches twice, or none" {
	change_program stamped_counter 's/n, 1)/n, 2)/'
	probe --parts attach --attaches 1
	[ "$status" -eq 1 ]
	json 'd["schema"] == "gbpf.error/1" and "WRONG COUNT" in d["error"]["message"]'
	rm -r lib
	change_program stamped_counter 's/n, 1)/n, 0)/'
	probe --parts cycles --cycles 1
	[ "$status" -eq 1 ]
	json 'd["schema"] == "gbpf.error/1" and "has counted nothing" in d["error"]["message"]'
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench probe ends what it started when it is interrupted" {
	"$GBPF" bench probe --device soft --parts cycles --cycles 100000 --progress >out 2>&1 3>&- &
	pid=$!
	works() { grep -q "cycle 2 of" out; }
	eventually works
	kill "$pid"
	wait "$pid" || status=$?
	[ "$status" -eq 143 ]
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench probe refuses values that make no sense" {
	for o in "--parts nosuch" "--rows nosuch" "--samples nosuch" "--rounds 0" "--attaches 0" "--cycles 0" "--cycles x"; do
		run "$GBPF" bench probe --device soft $o
		echo "$o: $output"
		[ "$status" -eq 2 ]
	done
	[ -z "$(ls "$TMPDIR")" ]
}
