# gbpf bench disb on the soft GPU, in small.
load helper

@test "bench disb measures a workload under each condition" {
	run --separate-stderr "$GBPF" --json bench disb --device soft --workloads micro --seconds 1 --repeats 2 \
		--conditions rt,default,gbpf --policy lc_first --save out.json
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	json 'd["schema"] == "gbpf.bench.disb/1" and [w["workload"] for w in d["workloads"]] == ["micro"]'
	json '[c["state"] for c in d["workloads"][0]["conditions"]] == ["run"] * 3'
	json 'all(t["requests"] > 0 and 0 < t["p50_us"] <= t["p99_us"] <= t["p99.9_us"] for c in d["workloads"][0]["conditions"] for t in c["tasks"])'
	# 40 a second for 2 s, as many as were not dropped
	json 'all(78 <= t["requests"] + t["dropped"] <= 80 for c in d["workloads"][0]["conditions"] for t in c["tasks"] if t["real_time"])'
	json '[len(c["tasks"]) for c in d["workloads"][0]["conditions"]] == [1, 2, 2]'
	json 'd["workloads"][0]["conditions"][1]["rt_mean_ratio"] > 1.05'
	[ -s out.json ]
}

@test "bench disb: gBPF's real-time tasks are faster than unrestricted ones, and where the time goes is said" {
	run --separate-stderr "$GBPF" --json bench disb --device soft --workloads micro --seconds 2 --repeats 3 \
		--conditions rt-mps,rt-mps-again,mps,gbpf-shared --policy auto
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json '[c["condition"] for c in d["workloads"][0]["conditions"]] == ["rt-mps", "rt-mps-again", "mps", "gbpf-shared"]'
	# the same twice, then the order
	json '[c["rt_mean_ratio"] for c in d["workloads"][0]["conditions"]][0] == 1'
	json 'd["workloads"][0]["conditions"][3]["rt_mean_ratio"] < d["workloads"][0]["conditions"][2]["rt_mean_ratio"]'
	json 'all(c["rt_mean_ratio_interval"][0] <= c["rt_mean_ratio"] <= c["rt_mean_ratio_interval"][1] and len(c["round_mean_ratios"]) == 3 for c in d["workloads"][0]["conditions"])'
	# the parts are the whole
	json 'all(abs(sum(t["met_nobody"][k + "_us"] for k in ("first", "front", "rest")) - t["met_nobody"]["mean_us"]) < 1 for c in d["workloads"][0]["conditions"] for t in c["tasks"] if t["real_time"])'
	json 'all(len(t["steps_us"]) == 11 for c in d["workloads"][0]["conditions"] for t in c["tasks"] if t["real_time"])'
	json 'all(t["gbpf"]["launches"] > 0 for t in d["workloads"][0]["conditions"][3]["tasks"])'
	json 'd["workloads"][0]["conditions"][3]["tasks"][1]["gbpf"]["block_launches"] > 0'
}

@test "bench disb refuses what makes no sense, and leaves nothing" {
	run "$GBPF" bench disb --workloads Q
	[ "$status" -eq 2 ]
	[[ "$output" == *REAL* ]]
	run "$GBPF" bench disb --be sometimes
	[ "$status" -eq 2 ]
	export TMPDIR=$cli_dir/tmp
	mkdir "$TMPDIR"
	run "$GBPF" bench disb --device soft --workloads micro --seconds 1 --be periodic --conditions rt,mps --policy fifo
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *micro*rt*DB* ]]
	[ -z "$(ls "$TMPDIR")" ]
}
