# gbpf bench dev tenants and pace on the soft GPU, in small.
load helper

setup() {
	cli_setup
	export TMPDIR=$cli_dir/tmp
	mkdir "$TMPDIR"
}

@test "bench dev tenants says what it should of each class" {
	run --separate-stderr "$GBPF" --json bench dev tenants --device soft --policy lc_first --repeats 2 --kernels 8 \
		--batch-clients 3 --conditions default,gbpf --save out.json
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	json 'd["schema"] == "gbpf.bench.tenants/1" and [c["state"] for c in d["conditions"]] == ["run", "run"]'
	json 'all(len(c["figures"]) == 6 and all(0 <= f["p50_us"] <= f["p99_us"] for f in c["figures"]) for c in d["conditions"])'
	json 'all(f["kernels"] == 2 * 8 * 4 * (2 if f["class"] == "latency" else 3) for c in d["conditions"] for f in c["figures"])'
	[ -s out.json ]
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench dev tenants sets time slices where it is asked to" {
	run "$GBPF" bench dev tenants --device soft --policy lc_first --repeats 1 --kernels 4 --latency-clients 1 --batch-clients 1 \
		--streams 2 --kernel-us 1000 --gap-us 500 --conditions slices
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *slices*latency*start* ]]
	run --separate-stderr "$GBPF" --json bench dev tenants --device soft --policy lc_first --repeats 1 --kernels 4 --conditions alone,alone-mps
	[ "$status" -eq 0 ]
	json '[[f["class"] for f in c["figures"]] for c in d["conditions"]] == [["latency"] * 3] * 2'
	run "$GBPF" bench dev tenants --conditions nosuch
	[ "$status" -eq 2 ]
}

@test "bench dev pace measures each shape, on and off, and checks results" {
	run --separate-stderr "$GBPF" --json bench dev pace --device soft --repeats 2 --ms 200
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json 'd["schema"] == "gbpf.bench.pace/1" and len(d["shapes"]) == 3'
	json 'all(s["plain_per_s"] > 0 and s["gbpf_per_s"] > 0 and s["checked"] > 0 for s in d["shapes"])'
	json 'all(s["block_launches"] > 0 for s in d["shapes"]) and not d["burst"]'
	[ -z "$(ls "$TMPDIR")" ]
	run --separate-stderr "$GBPF" --json bench dev pace --device soft --policy auto --repeats 1 --ms 100 --burst --depth 3 --lane shared
	[ "$status" -eq 0 ]
	json 'd["burst"] and d["lane"] == "shared"'
	run "$GBPF" bench dev pace --lane nosuch
	[ "$status" -eq 2 ]
}

@test "bench dev pace measures machine code and modes of its gate" {
	run --separate-stderr "$GBPF" --json bench dev pace --device soft --repeats 1 --ms 100 --shape 100:400 --machine-code --gate flag_first
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json 'd["machine_code"] and d["gate"] == "flag_first" and d["shapes"][0]["checked"] > 0'
	run "$GBPF" bench dev pace --gate nosuch
	[ "$status" -eq 2 ]
	run "$GBPF" bench dev pace --gate off --policy fifo
	[ "$status" -eq 2 ]
	[[ "$output" == *--policy* ]]
}

@test "bench dev reach counts a program of PTX, and names what this Python does not have" {
	cat >python <<-'END'
		#!/bin/sh
		case $2 in
		torch) echo "absent: No module named torch" ;;
		cupy) exit 3 ;;
		esac
	END
	chmod +x python
	run --separate-stderr "$GBPF" --json bench dev reach --device soft --policy lc_first --parts ptx,torch,cupy --python ./python
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json 'd["schema"] == "gbpf.bench.reach/2" and [p["state"] for p in d["parts"]] == ["run", "not available", "failed"]'
	json 'd["parts"][0]["launches"] > 0 and d["parts"][0]["kernel_launches"] > 0'
	json 'd["parts"][0]["stoppable_launches"] == d["parts"][0]["kernel_launches"]'
	json '"torch" in d["parts"][1]["why"]'
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench dev reach counts launches that can be stopped, and names how" {
	run --separate-stderr "$GBPF" --json bench dev reach --device soft --policy lc_first --parts ptx,code
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json '[(p["part"], p["state"], [k["how"] for k in p["kernels"]]) for p in d["parts"]] == [("ptx", "run", ["clone"]),
		("code", "run", ["machine code"])]'
	json 'all(p["persistent_launches"] == 0 < p["stoppable_launches"] == p["kernel_launches"] for p in d["parts"])'
	json 'all(0 < p["stoppable_gpu_ms"] == p["gpu_ms"] for p in d["parts"])'
	json '[[e["text"].split()[0] for e in p["events"] if e["kind"] == "start"] for p in d["parts"]] == [["reach-ptx"], ["reach-code"]]'
	GBPF_BLOCK=ptx run --separate-stderr "$GBPF" --json bench dev reach --device soft --policy lc_first --parts ptx,code
	[ "$status" -eq 0 ]
	json '[p["stoppable_launches"] > 0 for p in d["parts"]] == [True, False]'
	json 'd["parts"][1]["kernels"][0]["how"].startswith("no: ")'
	GBPF_BLOCK=ptx run "$GBPF" bench dev reach --device soft --policy lc_first --parts code
	[[ "$output" == *" launches "*" ms  no: machine code is not patched"* ]]
}

@test "bench dev reach counts what can be probed, by form" {
	run --separate-stderr "$GBPF" --json bench dev reach --device soft --policy lc_first --parts ptx,code --probes
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json '[p["probes"]["answered"] for p in d["parts"]] == [True, True]'
	json '[p["probes"]["forms"][f]["launches_percent"] for p, f in zip(d["parts"], ("ptx", "stub"))] == [100, 100]'
	json '[len(p["probes"]["whys_of_shown"]) for p in d["parts"]] == [0, 1]'
	run "$GBPF" bench dev reach --device soft --policy lc_first --parts code --probes
	[[ "$output" == *"probes: stub     100.0 % of launches, 100.0 % of GPU time"* ]]
	[[ "$output" == *" launches "*" ms  stub: it was "* ]]
}

@test "the report of bench dev reach shows each reason once why an image was not patched" {
	run env PYTHONPATH="$GBPF_PREFIX/lib/gbpf/bench/report" python3 - <<-'END'
		import reach
		class Out:
		    line = document = print
		event = {'seq': 1, 'kind': 'machine-code', 'text': 'machine code of 9 bytes is loaded unpatched: unknown section'}
		stats = {'launches': 0, 'block_launches': 0, 'reach': {k: 0 for k in reach.TOTALS}}
		part = {'part': 'cupy', 'is': 'CuPy', 'state': 'run', 'text': '', 'pass_ms': 0, 'tenants': [{'stats': stats}],
		    'events': [event, event, {'seq': 2, 'kind': 'start', 'text': 'not shown'}]}
		reach.print_part(Out, part, reach.part_document(part))
	END
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c "event machine-code: .*unknown section" <<<"$output")" -eq 1 ]
	[[ "$output" != *"not shown"* ]]
}

@test "bench dev reach counts what a framework has compiled itself with gBPF's ptxas" {
	export GBPF_PTXAS=$REPO/tests/unit/ptx/fake-ptxas
	run --separate-stderr "$GBPF" --json bench dev reach --device soft --policy lc_first --parts triton --python "$REPO/tests/data/cli/framework"
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json '[(p["settings"], p["pass_ms"]) for p in d["parts"]] == [("as it likes", 1.5)]'
	json '[(k["name"], k["count"], k["how"].split(",")[0]) for k in d["parts"][0]["kernels"]] == [("k", 50, "clone")]'
	json 'd["parts"][0]["kernel_launches"] == 50 and d["parts"][0]["stoppable_launches"] == 50'
}

@test "without python3, bench names the package" {
	run --separate-stderr env PATH=/nonexistent "$GBPF" bench dev tenants --device soft --conditions default
	[ "$status" -eq 1 ]
	[ -z "$output" ]
	[[ "$stderr" == *"cannot run python3"*"package python3"* ]]
}

# Starts a measurement, whose two processes are $bench, the reader of the records, and its child.
start_measurement() {
	"$GBPF" bench dev tenants --device soft --policy fifo --conditions default --kernels 4096 >out 2>err 3>&- &
	bench=$!
	measuring() { pgrep -f "$TMPDIR/gbpf-bench-" && pgrep -P $bench bench-tenants; }
	eventually measuring
	program=$(pgrep -P $bench bench-tenants)
}

no_process() { ! pgrep -f "$TMPDIR/gbpf-bench-"; }

@test "a measuring program that is killed is an error, and leaves no process" {
	start_measurement
	kill -KILL "$program"
	status=0
	wait $bench || status=$?
	cat out err
	[ "$status" -eq 1 ]
	[ ! -s out ]
	grep -q "bench-tenants: Killed" err
	eventually no_process
}

@test "when the reader of the records is killed, the measurement ends and cleans up" {
	start_measurement
	kill -KILL $bench
	wait $bench || true
	no_folder() { [ -z "$(ls "$TMPDIR")" ]; }
	eventually no_folder
	eventually no_process
	program_ended() { [ -z "$(tr -d '\0' <"/proc/$program/cmdline")" ]; } 2>/dev/null
	eventually program_ended
}
