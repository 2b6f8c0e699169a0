# gbpf bench preempt on the soft GPU, in small: what is there makes sense, and gBPF's order is right where it is robust.
load helper

leftovers() { ls -d "$TMPDIR"/gbpf-bench-* 2>/dev/null || pgrep -f "$TMPDIR/gbpf-bench-"; }

setup() {
	cli_setup
	export TMPDIR=$cli_dir/tmp
	mkdir "$TMPDIR"
}

@test "bench preempt says what it should of each condition and kind" {
	run --separate-stderr "$GBPF" --json bench preempt --device soft --policy lc_first --requests 45 --repeats 3 \
		--conditions alone,default,gbpf --save out.json --svg out.svg
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	json 'all(0 < k["batch"]["share"] for c in d["conditions"][1:] for k in c["kinds"])'
	json 'd["schema"] == "gbpf.bench.lcbe/1" and [c["condition"] for c in d["conditions"]] == ["alone", "default", "gbpf"]'
	json 'all(c["state"] == "run" and c["rounds"] == 3 and c["wrong"] == 0 and c["checked"] > 0 for c in d["conditions"])'
	json 'all(k["requests"] == 45 and 0 < k["p50"]["us"] <= k["p99"]["us"] <= k["p99.9"]["us"] for c in d["conditions"] for k in c["kinds"])'
	json 'all(k[p]["interval"][0] <= k[p]["us"] <= k[p]["interval"][1] for c in d["conditions"] for k in c["kinds"] for p in ("p50", "p99"))'
	python3 -c 'import json, sys, xml.dom.minidom as m; m.parse("out.svg"); sys.exit(json.load(open("out.json"))["schema"] != "gbpf.bench.lcbe/1")'
	run ! leftovers
}

@test "bench preempt leaves batch the gaps of host-bound requests to fill" {
	run --separate-stderr "$GBPF" --json bench preempt --device soft --policy fifo --requests 6 --repeats 2 --kinds hostbound,one \
		--conditions alone,default --think-us 3000 --kernels 4
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json '[[k["kind"] for k in c["kinds"]] for c in d["conditions"]] == [["one", "hostbound"]] * 2 and d["think_us"] == 3000 and d["kernels"] == 4'
	json 'd["conditions"][0]["kinds"][1]["p50"]["us"] > 4 * 3000'
	json 'abs(b["busy"] - 6 * 4 * d["lc_block_us"] / 1e6 / sum(r["seconds"] for r in k["rounds"])) < 1e-6 if (k := d["conditions"][1]["kinds"][1]) and (b := k["batch"]) else 0'
}

@test "bench preempt names what cannot be had, and prints a table" {
	run "$GBPF" bench preempt --device soft --policy fifo --requests 4 --repeats 2 --kinds one --conditions alone,mps,short
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *alone*one* ]]
	[[ "$output" == *mps* ]]
	[[ "$output" == *short* ]]
}

@test "bench preempt with several streams, several batch clients, on the default stream, restarted" {
	run --separate-stderr "$GBPF" --json bench preempt --device soft --policy lc_first --requests 6 --repeats 2 --kinds one \
		--conditions gbpf --batch-clients 2 --streams 3 --depth 4 --grid 8 --restart
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json 'd["batch_clients"] == 2 and d["streams"] == 3 and d["conditions"][0]["wrong"] == 0'
	run --separate-stderr "$GBPF" --json bench preempt --device soft --policy lc_first --requests 6 --repeats 2 --kinds queued \
		--conditions gbpf --default-stream --grid 8
	[ "$status" -eq 0 ]
	json 'd["default_stream"] and d["conditions"][0]["rounds"] == 2'
}

@test "bench preempt --machine-code measures conditions with batch with and without PTX" {
	run --separate-stderr "$GBPF" --json bench preempt --device soft --policy lc_first --requests 24 --repeats 2 --kinds one \
		--conditions alone,default,gbpf --machine-code
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json '[c["condition"] for c in d["conditions"]] == ["alone", "default", "default-code", "gbpf", "gbpf-code"]'
	json 'all(c["machine_code"] == c["condition"].endswith("-code") for c in d["conditions"])'
	json 'all(c["state"] == "run" and c["wrong"] == 0 < c["checked"] for c in d["conditions"])'
	json 'all(("to_ptx" in c["kinds"][0]) == c["machine_code"] for c in d["conditions"])'
	json 'all(c["kinds"][0]["to_ptx"]["p99"] > 0 for c in d["conditions"] if c["machine_code"])'
	json '[[t["stats"]["block_launches"] > 0 for t in c["tenants"] if t["class"] == "batch"] for c in d["conditions"][3:]] == [[True], [True]]'
	run "$GBPF" bench preempt --lc-cmd true --be-cmd true --machine-code
	[ "$status" -eq 2 ]
	run ! leftovers
}

@test "bench preempt --probe measures gBPF's conditions with and without a tool in batch's kernels" {
	run --separate-stderr "$GBPF" --json bench preempt --device soft --policy lc_first --requests 24 --repeats 2 --kinds one \
		--conditions alone,gbpf --machine-code --grid 4 --probe "$GBPF_PREFIX/lib/gbpf/bench/probe/block_counter.bpf.o"
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json '[c["condition"] for c in d["conditions"]] == ["alone", "gbpf", "gbpf-code", "gbpf-probe", "gbpf-code-probe"]'
	json 'all(c["state"] == "run" and c["wrong"] == 0 < c["checked"] for c in d["conditions"])'
	json 'all(("to_unprobed" in c["kinds"][0]) == c["probe"] == c["condition"].endswith("-probe") for c in d["conditions"])'
	json '[[t["stats"]["block_launches"] > 0 for t in c["tenants"] if t["class"] == "batch"] for c in d["conditions"][1:]] == 4 * [[True]]'
	echo text >no.bpf.o
	run "$GBPF" bench preempt --device soft --requests 4 --repeats 1 --conditions gbpf --probe no.bpf.o
	[ "$status" -ne 0 ]
	run "$GBPF" bench preempt --lc-cmd true --be-cmd true --probe no.bpf.o
	[ "$status" -eq 2 ]
	run ! leftovers
}

# On the soft GPU times differ by more than the goal.
@test "bench preempt --swap measures gBPF's conditions while memory of batch moves, and while it fits" {
	run --separate-stderr "$GBPF" --json bench preempt --device soft --policy lc_first --requests 24 --repeats 2 --kinds one \
		--conditions alone,gbpf --swap 96M --progress
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json '[(c["condition"], c["moving"], c["swaps"]) for c in d["conditions"]] == [("alone", False, False), ("gbpf", False, False), ("gbpf-fits", True, False), ("gbpf-swaps", True, True)]'
	json 'all(c["state"] == "run" and c["wrong"] == 0 < c["checked"] for c in d["conditions"])'
	moved() { python3 -c 'import json, sys; print(sum(t["stats"][sys.argv[2]] for c in json.load(sys.stdin)["conditions"] if c["condition"] == sys.argv[1] for t in c["tenants"]))' "$@" <<<"$output"; }
	[ "$(moved gbpf-fits mem_out_bytes)" -eq 0 ]
	[ "$(moved gbpf-swaps mem_out_bytes)" -gt 0 ]
	[ "$(moved gbpf-swaps mem_back_bytes)" -gt 0 ]
	json 'd["conditions"][3]["kinds"][0]["to_fits"]["p99"] == d["conditions"][3]["kinds"][0]["p99"]["us"] / d["conditions"][2]["kinds"][0]["p99"]["us"]'
	json '"to_fits" not in d["conditions"][2]["kinds"][0] and "to_fits" not in d["conditions"][1]["kinds"][0]'
	run "$GBPF" bench preempt --lc-cmd true --be-cmd true --swap 96M
	echo "$output"
	[ "$status" -eq 2 ]
}

@test "bench preempt lists the first round of lanes that the policy chooses apart" {
	run --separate-stderr "$GBPF" --json bench preempt --device soft --policy lc_first --requests 60 --repeats 3 --kinds one \
		--conditions alone,default,gbpf-auto
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json '[c["condition"] for c in d["conditions"]] == ["alone", "default", "gbpf-auto-first", "gbpf-auto"]'
	json '[(c["rounds"], c["kinds"][0]["requests"]) for c in d["conditions"]] == [(3, 60), (3, 60), (1, 20), (2, 40)]'
	json 'all(c["lane"] == "process" and c["kinds"][0]["batch"]["share"] > 0 for c in d["conditions"][2:])'
}

@test "bench preempt ends everything when it is interrupted" {
	"$GBPF" bench preempt --device soft --policy lc_first --requests 100000 --repeats 2 --conditions gbpf --progress >out 2>err 3>&- &
	bench=$!
	measuring() { pgrep -f "name gbpf-be0"; }
	eventually measuring
	kill -TERM $bench
	status=0
	wait $bench || status=$?
	[ "$status" -eq 143 ]
	grep -q interrupted err
	run ! leftovers
}

@test "bench preempt refuses what makes no sense" {
	run "$GBPF" bench preempt --requests 0
	[ "$status" -eq 2 ]
	run "$GBPF" bench preempt --kinds two
	[ "$status" -eq 2 ]
	[[ "$output" == *one*queued*synced* ]]
	run "$GBPF" bench preempt --conditions alone,nosuch
	[ "$status" -eq 2 ]
	run "$GBPF" bench preempt --device soft --policy nosuch
	[ "$status" -eq 5 ]
}

@test "bench preempt runs any two commands" {
	# The sleeps are the two commands' rates.
	cat >lc.sh <<-'END'
		echo starting
		while :; do sleep 0.002; echo 250.5; done # a service of that period
	END
	cat >be.sh <<-'END'
		while :; do sleep 0.005; echo 3; done # likewise
	END
	run --separate-stderr "$GBPF" --json bench preempt --device soft --policy lc_first --repeats 2 --requests 20 --seconds 30 \
		--conditions alone,default,short,gbpf --lc-cmd "sh $PWD/lc.sh" --be-cmd "sh $PWD/be.sh"
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json '[c["state"] for c in d["conditions"]] == ["run", "run", "not available", "run"]'
	json 'all(c["kinds"][0]["kind"] == "command" and c["kinds"][0]["p50"]["us"] == 250.5 for c in d["conditions"] if c["kinds"])'
	json 'all(c["kinds"][0]["batch"]["kernels_per_s"] > 3 for c in d["conditions"] if c["kinds"] and c["condition"] != "alone")'
	# gbpfd knows no program of theirs.
	json 'all(c["kinds"][0]["batch"][m] is None for c in d["conditions"] if c["kinds"] and c["condition"] != "alone" for m in ("busy", "busy_counted_in"))'
	run ! leftovers
	# The time that commands take to start is no part of the limit.
	cat >slow.sh <<-'END'
		sleep 5 # it loads
		while :; do sleep 0.2; echo 250.5; done # a service of that period
	END
	run --separate-stderr "$GBPF" --json bench preempt --device soft --policy lc_first --repeats 1 --requests 5 --seconds 4 \
		--conditions alone --lc-cmd "sh $PWD/slow.sh" --be-cmd "sh $PWD/be.sh"
	[ "$status" -eq 0 ]
	json 'd["conditions"][0]["kinds"][0]["requests"] == 5'
	run --separate-stderr "$GBPF" bench preempt --device soft --policy lc_first --requests 2 --repeats 1 --seconds 2 --conditions default \
		--lc-cmd "echo no GPU here; exit 3" --be-cmd "sh $PWD/be.sh"
	[ "$status" -eq 1 ]
	[[ "$output" == *FAILED*"latency command has exited"* ]]
	run "$GBPF" bench preempt --lc-cmd true
	[ "$status" -eq 2 ]
}

@test "bench preempt compares batch with the time in which gbpfd counts no work of the latency command" {
	export PYTHONPATH=$REPO/tests/data/gpu PYTHONDONTWRITEBYTECODE=1
	# The sleeps are the two commands' rates.
	cat >lc.py <<-'END'
		import time
		from anything import device
		for _ in range(100):  # at the first launches of a queue durations are measured
		    device().launch()
		while True:
		    begin = time.perf_counter()
		    device().launch()
		    device().synchronize()
		    time.sleep(0.002)  # work of the host in a request
		    print((time.perf_counter() - begin) * 1e6, flush=True)
	END
	cat >be.sh <<-'END'
		while :; do sleep 0.005; echo 3; done # a program of that rate
	END
	run --separate-stderr "$GBPF" --json bench preempt --device soft --policy lc_first --repeats 2 --requests 20 --seconds 30 \
		--conditions default,gbpf --lc-cmd "python3 $PWD/lc.py" --be-cmd "sh $PWD/be.sh"
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json '[c["kinds"][0]["batch"]["busy_counted_in"] for c in d["conditions"]] == ["gbpf", "gbpf"]'
	json 'all(b["busy"] > 0 and b["share"] > 0 for c in d["conditions"] for b in [c["kinds"][0]["batch"]])'
	run ! leftovers
}
