# gbpf bench: the figures are there and make sense; how good they are is for docs/BENCHMARKS.
load helper

@test "bench dev hook measures the empty program and the shipped policies" {
	run --separate-stderr "$GBPF" --json bench dev hook --repeat 3 --calls 5000
	echo "$stderr"
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	json 'd["schema"] == "gbpf.bench.hook/1" and {"empty", "fifo", "fair", "lc_first"} == {p["policy"] for p in d["programs"]}'
	json 'all(p["compiled_ns"]["min"] <= p["compiled_ns"]["median"] <= p["compiled_ns"]["max"] for p in d["programs"])'
	json 'all(p["machine_code"] for p in d["programs"])'
	json 'all(0 < p["interpreted_ns"]["min"] <= p["interpreted_ns"]["median"] for p in d["programs"])'
}

@test "bench dev hook takes names and files" {
	test_policies .
	run "$GBPF" bench dev hook --repeat 2 --calls 2000 ./good.bpf.o fifo examples/mlfq
	[ "$status" -eq 0 ]
	[[ "$output" == *mlfq*submit* ]]
	[[ "$output" == *good*submit* ]]
	[[ "$output" == *fifo*submit* ]]
	[[ "$output" != *lc_first* ]]
	run --separate-stderr "$GBPF" bench dev hook ./verdict.bpf.o
	[ "$status" -eq 1 ]
	[[ "$stderr" == *verdict* ]]
	run "$GBPF" bench dev hook nosuch
	[ "$status" -eq 1 ]
}

@test "bench dev hook --json reports refused policies in the document" {
	test_policies .
	run --separate-stderr "$GBPF" --json bench dev hook --repeat 1 --calls 1000 ./verdict.bpf.o fifo
	[ "$status" -eq 1 ]
	[ -z "$stderr" ]
	json '[e["code"] for e in d["errors"]] == ["verify"] and [p["policy"] for p in d["programs"]] == ["fifo"]'
}

@test "bench latency on the soft GPU, without a policy, with one, and off" {
	for policy in none fair off; do
		run --separate-stderr "$GBPF" --json bench latency --device soft --n 512 --policy $policy
		echo "$policy: $status $output $stderr"
		[ "$status" -eq 0 ]
		json "d['schema'] == 'gbpf.bench.launch/1' and len(d['rounds']) == 3 and d['session'] == ('$policy' != 'off')"
		json "(d['policy_version'] > 0) == ('$policy' == 'fair')"
		json 'all(0 < r[w]["p10"] <= r[w]["p50"] <= r[w]["p90"] for r in d["rounds"] for w in ("real_ns", "shim_ns"))'
	done
}

@test "bench latency --swap compares virtual GPUs without and with swap in turn" {
	run --separate-stderr "$GBPF" --json bench latency --device soft --n 512 --swap 64M --pairs 3
	echo "$status $output $stderr"
	[ "$status" -eq 0 ]
	json '[(r["condition"], r["pair"]) for r in d["swap"]["records"]] == [("plain", 0), ("swap", 0), ("swap", 1), ("plain", 1), ("plain", 2), ("swap", 2)]'
	json 'd["session"] and d["swap"]["pairs"] == 3 and d["swap"]["goal_ns"] == 20'
	more() { # of each pair: what the shim adds with swap, less what it adds without
		json "sorted((lambda a: a['swap'] - a['plain'])({r['condition']: r['shim_ns']['$1'] - r['real_ns']['$1'] for r in d['swap']['records'] if r['pair'] == p})
			for p in range(3))[1] == d['swap']['$1']['more_ns'][1]"
	}
	more p50
	more batch_mean
	run -2 "$GBPF" bench latency --device soft --swap 64M --policy off
	run -2 "$GBPF" bench latency --device soft --swap 1M
	run --separate-stderr "$GBPF" bench latency --device soft --n 64 --swap 64M --pairs 1
	echo "$output"
	[[ $output == *"goal: MEAN at most 20 ns more with swap: "* ]]
}

# Prints the files that a measurement left in its folder.
leftovers() { ls -d "$cli_dir"/gbpf-bench-* 2>/dev/null || pgrep -f "$cli_dir/gbpf-bench-"; }

@test "bench latency leaves nothing running and no folder" {
	TMPDIR=$cli_dir run "$GBPF" bench latency --device soft --n 64
	echo "$output"
	[ "$status" -eq 0 ]
	run ! leftovers
	run -3 "$GBPF" ps
}

@test "bench latency cleans up when it is interrupted" {
	TMPDIR=$cli_dir "$GBPF" bench latency --device soft --n 10000000 >out 2>err &
	bench=$!
	measuring() { pgrep -P $bench -f bench-launch && leftovers; }
	eventually measuring
	kill -TERM $bench
	status=0
	wait $bench || status=$?
	[ "$status" -eq 143 ]
	run ! leftovers
}

@test "a library that is no libcuda is an error document under --json" {
	gcc -shared -fPIC -xc - -o other.so <<<'int other;'
	GBPF_REAL_CUDA=$PWD/other.so run --separate-stderr "$GBPF" --json bench latency --policy off
	echo "$status $output $stderr"
	[ "$status" -eq 1 ]
	json 'd["error"]["message"]'
}

@test "bench latency with a policy that is not there" {
	run "$GBPF" bench latency --device soft --policy nosuch
	[ "$status" -eq 5 ]
}

@test "bench dev policy compares every program with clang's code, and reports limits" {
	run --separate-stderr "$GBPF" --json bench dev policy --repeat 2 --ms 1
	echo "$stderr"
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	json 'd["schema"] == "gbpf.bench.policy/1" and len(d["programs"]) >= 16'
	json '{"fair_submit", "fair_retire", "fair_tick", "lc_first_submit", "lc_first_dispatch", "fifo_submit", "hash64", "sort16"} <= {p["name"] for p in d["programs"]}'
	json 'all(p["ratio"]["median"] > 0 and p["insns"] > 0 and p["interpreted_ns"]["median"] > 0 for p in d["programs"])'
	json 'any("empty hook" in g["what"] for g in d["goals"]) and any("hash" in g["what"] for g in d["goals"])'
	json 'all(g["kept"] == (g["value"]["median"] <= g["limit"]) for g in d["goals"])'
}
