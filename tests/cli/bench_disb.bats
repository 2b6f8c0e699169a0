# gbpf bench dev disb on the soft GPU, in small.
load helper

@test "bench dev disb measures a workload under each condition" {
	run --separate-stderr "$GBPF" --json bench dev disb --device soft --workloads micro --seconds 1 --repeats 2 \
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
	# that the ratios are right, the next test shows
	json '[c["rt_mean_ratio"] for c in d["workloads"][0]["conditions"]][0] == 1'
	json 'all(c["rt_mean_ratio"] > 0 for c in d["workloads"][0]["conditions"])'
	[ -s out.json ]
}

@test "bench dev disb: where the time of real-time tasks goes is said" {
	run --separate-stderr "$GBPF" --json bench dev disb --device soft --workloads micro --seconds 1 --repeats 3 \
		--conditions rt-mps,rt-mps-again,mps,gbpf-shared --policy auto --save order.json
	echo "$stderr"
	[ "$status" -eq 0 ]
	json '[c["condition"] for c in d["workloads"][0]["conditions"]] == ["rt-mps", "rt-mps-again", "mps", "gbpf-shared"]'
	json '[c["rt_mean_ratio"] for c in d["workloads"][0]["conditions"]][0] == 1'
	json 'all(c["rt_mean_ratio_interval"][0] <= c["rt_mean_ratio"] <= c["rt_mean_ratio_interval"][1] and len(c["round_mean_ratios"]) == 3 for c in d["workloads"][0]["conditions"])'
	# the parts are the whole
	json 'all(abs(sum(t["met_nobody"][k + "_us"] for k in ("first", "front", "rest")) - t["met_nobody"]["mean_us"]) < 1 for c in d["workloads"][0]["conditions"] for t in c["tasks"] if t["real_time"])'
	json 'all(len(t["steps_us"]) == 11 for c in d["workloads"][0]["conditions"] for t in c["tasks"] if t["real_time"])'
	json 'all(t["gbpf"]["launches"] > 0 for t in d["workloads"][0]["conditions"][3]["tasks"])'
	json 'd["workloads"][0]["conditions"][3]["tasks"][1]["gbpf"]["block_launches"] > 0'
}

@test "bench dev disb refuses what makes no sense, and leaves nothing" {
	run "$GBPF" bench dev disb --workloads Q
	[ "$status" -eq 2 ]
	[[ "$output" == *REAL* ]]
	run "$GBPF" bench dev disb --be sometimes
	[ "$status" -eq 2 ]
	export TMPDIR=$cli_dir/tmp
	mkdir "$TMPDIR"
	run "$GBPF" bench dev disb --device soft --workloads micro --seconds 1 --be periodic --conditions rt,mps --policy fifo
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *micro*rt*DB* ]]
	[ -z "$(ls "$TMPDIR")" ]
}

# A PyTorch without numbers: the networks' shapes, the protocol and its ends.
@test "bench dev disb --torch: networks have the size of the papers', and tasks run under each condition" {
	export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$REPO/tests/data/cli
	run python3 -c "
import sys; sys.path.insert(0, '$REPO/bench/disb')
import torch, disb_torch
for name, (make, shape) in disb_torch.MODELS.items():
	model = make(torch)
	print(name, model.count(), *model(torch.randn(*shape)).shape)"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$output" = "R152 60192808 1 1000
D201 20013928 1 1000
V19 143667240 1 1000
I3 23834568 1 1000
DB 66362880 1 128 768" ]
	run --separate-stderr "$GBPF" --json bench dev disb --torch --device soft --workloads micro --seconds 1 --conditions rt,mps,gbpf \
		--policy lc_first
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json 'd["networks"] == "PyTorch" and [c["state"] for c in d["workloads"][0]["conditions"]] == ["run"] * 3'
	json 'all(39 <= t["requests"] + t["dropped"] <= 40 for c in d["workloads"][0]["conditions"] for t in c["tasks"] if t["real_time"])'
	json 'all(t["requests"] > 0 for c in d["workloads"][0]["conditions"] for t in c["tasks"])'
	run "$GBPF" bench dev disb --torch --graphs --device soft --workloads micro --seconds 1 --conditions rt --policy fifo
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"as CUDA graphs alone: DB"* ]]
}

@test "bench dev disb --torch says what is missing, and wrong results" {
	export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$REPO/tests/data/cli
	run env FAKE_TORCH_WRONG=1 "$GBPF" bench dev disb --torch --device soft --workloads micro --seconds 1 --conditions rt --policy fifo
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" =~ "FAILED: WRONG RESULTS: "([0-9]+)" of "([0-9]+)" values" ]]
	# All of them: 40 in a second, less those that end after it.
	[ "${BASH_REMATCH[1]}" -eq "${BASH_REMATCH[2]}" ]
	((BASH_REMATCH[2] >= 1 && BASH_REMATCH[2] <= 40))
	run env FAKE_TORCH_NO_GPU=1 "$GBPF" bench dev disb --torch --device soft --workloads micro --policy fifo
	[ "$status" -eq 1 ]
	[[ "$output" == *"PyTorch sees no GPU"* ]]
	run "$GBPF" bench dev disb --torch --python nobody --device soft --workloads micro --policy fifo
	[ "$status" -eq 1 ]
	[[ "$output" == *"nobody: No such file or directory"* ]]
	mkdir none
	echo "raise ModuleNotFoundError(\"No module named 'torch'\")" >none/torch.py
	PYTHONPATH=$PWD/none run "$GBPF" bench dev disb --torch --device soft --workloads micro --policy fifo
	[ "$status" -eq 1 ]
	[[ "$output" == *"python"*"No module named 'torch'"* ]]
	run "$GBPF" bench dev disb --torch --workloads A,Z
	[ "$status" -eq 2 ]
	[[ "$output" == *"'Z' is not one of"* ]]
	run "$GBPF" bench dev disb --graphs
	[ "$status" -eq 2 ]
	[[ "$output" == *"--torch"* ]]
}
