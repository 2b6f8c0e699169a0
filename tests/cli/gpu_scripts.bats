# The scripts of tests/gpu on the soft GPU, with modules in place of the frameworks: their processes, limits, states and arithmetic.
load helper

setup() {
	cli_setup
	export PYTHONPATH=$REPO/tests/data/gpu TMPDIR=$cli_dir PYTHONDONTWRITEBYTECODE=1
}

# script NAME OPTION...: runs a script on the soft GPU; its rows are in rows.json.
script() {
	run timeout 900 "$REPO/tests/gpu/$1" --device soft --gbpf "$GBPF" --json rows.json "${@:2}"
	echo "$output"
}

# rows EXPRESSION: evaluates it over r, the rows of rows.json.
rows() {
	python3 -c 'import json, sys; r = json.load(open("rows.json"))["rows"]; sys.exit(0 if eval(sys.argv[1]) else 1)' "$1" || {
		echo "not true: $1" >&2
		cat rows.json >&2
		return 1
	}
}

nothing_left() {
	[ -z "$(ls -d "$cli_dir"/gbpf-gpu-* 2>/dev/null)" ]
	[ -z "$(grep -lsz "GBPF_TESTBED=$cli_dir" /proc/[0-9]*/environ)" ]
}

@test "gpu/beside measures every condition, and continues when one kind of batch fails" {
	FAKE_FAILS=fft2 script beside --batch fft,training --rounds 1 --seconds 0.2 --starts 3 --learn 0.1
	[ "$status" -eq 1 ]
	rows '[(x["batch"], x["state"]) for x in r][0] == ("fft", "FAILED") and "fft2 fails" in r[0]["why"]'
	rows '[(x["requests"], x["condition"]) for x in r[1:]] == [(q, c) for q in ("small", "one") for c in ("alone", "default", "mps", "first", "auto")]'
	rows 'all(x["n"] > 0 and x["wrong"] == 0 and x["p50_us"] <= x["p99_us"] for x in r[1:])'
	rows 'all(x["batch_share"] > 0 for x in r[1:] if x["condition"] != "alone")'
	rows 'all(x["busy"] > 0 and x["open"] > 0 for x in r[1:] if x["condition"] != "alone")'
	rows 'all(x["goal_over_us"] > 200 and x["kernels"] for x in r[1:] if x["condition"] in ("first", "auto"))'
	nothing_left
}

@test "gpu/beside measures requests and batch of libraries, and skips those that are not installed" {
	script beside --batch resnet,vit,gpt2 --requests generate --conditions default --rounds 1 --seconds 0.2
	[ "$status" -eq 0 ]
	rows '[(x["batch"], x["condition"]) for x in r] == [(b, c) for b in ("resnet", "vit", "gpt2") for c in ("alone", "default")]'
	rows 'all(x["requests"] == "generate" and x["n"] > 0 and x["wrong"] == 0 for x in r)'
	cp -r "$PYTHONPATH" fakes
	echo 'raise ImportError("transformers is not installed")' >fakes/transformers.py
	PYTHONPATH=$PWD/fakes script beside --batch gpt2,fft --requests one --conditions default --rounds 1 --seconds 0.2
	[ "$status" -eq 1 ]
	rows '[(x["batch"], x["state"]) for x in r] == [("gpt2", "skipped"), ("fft", "ok"), ("fft", "ok")] and "transformers" in r[0]["why"]'
	# Without a gbpfd busy is unknown.
	rows 'r[2]["busy"] is None and r[2]["batch_share"] > 0'
	nothing_left
}

@test "gpu/overhead compares all ways round by round, and says when no time is left" {
	script overhead --starts 1 --rounds 2 --phases 1 --window 0.01 --parts graph,launch
	[ "$status" -eq 0 ]
	rows 'all(("itself" in x["ways"][w]) == (w in ("block-off", "latency", "on")) for x in r for w in x["ways"])'
	rows '[(x["part"], x["rounds"], sorted(x["ways"])) for x in r] == [(p, 2, ["again", "block-off", "latency", "off", "on", "vgpu"]) for p in ("graph", "launch")]'
	rows 'all(w["interval"][0] <= w["ratio"] <= w["interval"][1] for x in r for w in x["ways"].values())'
	script overhead --starts 1 --rounds 1 --window 0.01 --parts launch --limit 0
	[ "$status" -eq 1 ]
	rows 'r[0]["state"] == "skipped"'
	nothing_left
}

@test "gpu/start measures each way, and names a program that hangs" {
	script start --runs 1
	[ "$status" -eq 0 ]
	rows '[(x["way"], x["runs"]) for x in r[:5]] == [(w, 1) for w in ("alone", "ptx", "nocache", "cold", "warm")]'
	rows 'all(x["first_s"]["median"] <= x["all_s"]["median"] and x["now_kb"]["median"] > 0 for x in r[:5])'
	FAKE_HANGS=solve script start --runs 1 --patience 2
	[ "$status" -eq 1 ]
	[[ "$output" == *"no end after 2 s"* ]]
	nothing_left
}

@test "gpu/pair lets the policy know both programs before it measures them" {
	script pair --kinds eager --rounds 1 --seconds 0.3
	[ "$status" -eq 0 ]
	rows '[x["condition"] for x in r] == ["alone", "batch alone", "default", "gBPF auto", "gBPF alone"]'
	rows 'r[3]["lanes"].keys() == {"latency", "batch"} and r[3]["left"] > 0 and r[3]["p99_ratio"] > 0'
	rows 'r[1]["busy"] == 0 and all(r[i]["busy"] > 0 and r[i]["open"] > 0 for i in (2, 3))'
	nothing_left
}

@test "gpu/blocks compares gates with clones, and auto with single ways" {
	script blocks --block-us 300 --requests 8 --auto-requests 6 --rounds 2 --kinds one --seconds 12
	[ "$status" -eq 0 ]
	rows '[(x["what"], x.get("lane"), x.get("condition")) for x in r] == [("lanes", "gbpf", None), ("lanes", "gbpf-shared", None),
		("auto", None, "gbpf-auto-first"), ("auto", None, "gbpf-auto"), ("documents", None, None)]'
	# A round of few requests may pass without a kernel of batch: then there is no share.
	rows 'all(x["gate"]["to_ptx"]["p99"] > 0 and x["gate"].get("batch", {"share": 1})["share"] > 0 for x in r[:2])'
	rows 'all(x["ways"].keys() >= {"mps-priority", "reef"} and x["figures"]["p99"]["us"] > 0 for x in r[2:4])'
	nothing_left
}

interrupted() {
	script interrupted --tests "$REPO/build/tests" --seconds 0.3 --lanes process "$@"
}

@test "gpu/interrupted compares frameworks and samples under interruptions" {
	interrupted --parts flip --programs operations,cupy,jax,triton,samples --samples reduction,scan --lanes process,shared
	[ "$status" -eq 0 ]
	rows '[sorted(x["program"] for x in r if x.get("lane") == l) for l in ("process", "shared")] == 2 * [["cupy", "jax", "operations", "samples", "triton"]]'
	rows 'all(not x["different"] and x["groups"] > 3 for x in r if x.get("lane") and x["program"] != "samples")'
	rows 'all(x["runs"] == 4 and x["launches"] > 0 for x in r if x.get("program") == "samples" )'
	rows 'r[-1]["interruptions"] == sum(x["interruptions"] for x in r[:-1] if "interruptions" in x) > 0'
	nothing_left
}

@test "gpu/interrupted finds results that differ, programs that hang, and too few interruptions" {
	FAKE_DIFFERS=1 interrupted --parts flip --programs cupy,samples --samples scan --expect 1000000000
	[ "$status" -eq 1 ]
	rows '[x["state"] for x in r if x.get("part") == "flip" and x["program"] == "cupy"] == ["FAILED"]'
	rows '[x["state"] for x in r if x.get("part") == "flip" and x["program"] == "samples"] == ["ok"]'
	rows 'r[-1]["state"] == "FAILED"'
	FAKE_HANGS=fft2 interrupted --parts flip --programs cupy --patience 2
	[ "$status" -eq 1 ]
	[[ "$output" == *"no end after 2 s"* ]]
	nothing_left
}

@test "gpu/interrupted kills gbpfd and both kinds of programs, and the survivor is right" {
	interrupted --parts pair --seconds 1
	[ "$status" -eq 0 ]
	rows 'r[1]["kills"] == ["latency", "gbpfd", "other batch program", "latency", "gbpfd", "batch"]'
	rows 'r[1]["served"] > 0 == r[1]["wrong"] and not r[1]["different"]'
	nothing_left
}

@test "gpu/machine-code runs parts, writes their files, and ends what takes too long" {
	run timeout 200 "$REPO/tests/gpu/machine-code"
	[ "$status" -eq 0 ]
	[[ "$output" == *first:*second:*third:* ]]
	run timeout 200 "$REPO/tests/gpu/machine-code" --device soft --gbpf "$GBPF" --out results --archive results.tar.gz stress kills
	echo "$output"
	[ "$status" -eq 0 ]
	[ -s results/stress.txt ]
	[ -s results/stress.json ]
	[ -s results/kills.json ]
	tar tzf results.tar.gz | grep -qx results/kills.json
	FAKE_HANGS=solve run timeout 200 "$REPO/tests/gpu/machine-code" --device soft --gbpf "$GBPF" --out results --grace 1 --limit 60 \
		--seconds 2 start machine
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"start: no end after 3 s"* ]]
	[[ "$output" == *"machine: ok"* ]]
	run timeout 200 "$REPO/tests/gpu/machine-code" --out results nosuch
	[ "$status" -eq 2 ]
	nothing_left
}

@test "gpu/images names a package that is not installed" {
	run timeout 200 "$REPO/tests/gpu/images" --json rows.json nosuch
	[ "$status" -eq 1 ]
	[[ "$output" == *"nosuch is not installed"* ]]
}

memory_ok() { # PART...: these parts are right, and got all that the limit leaves
	[ "$status" -eq 0 ]
	rows "[(x['part'], x['state'], x['wrong']) for x in r] == [(p, 'ok', 0) for p in '$*'.split()]"
	rows 'all(x["total"] == 256 << 20 and x["got"] <= x["ledger"] for x in r)'
	# Overhead that is found late is added to a full account.
	rows 'all(x["ledger"] <= x["total"] + max(0, x.get("noted_full", 0) - x.get("noted", 0)) for x in r if x["part"] != "devices")'
	nothing_left
}

@test "gpu/memory: programs of the driver get their limit, and no more" {
	script memory --parts driver,race,stack,graphs,pinned,devices --mem 256
	memory_ok driver race stack graphs pinned devices
	rows 'all(0.98 * x["total"] <= x["got"] <= x["total"] for x in r[:5])'
	rows '0.98 * (512 << 20) <= r[5]["got"] <= r[5]["ledger"] <= 512 << 20'
	rows 'all(x["free_full"] < 2 << 20 for x in r if x["part"] != "pinned")'
}

@test "gpu/memory: allocators like those of frameworks live within a limit" {
	local parts="driver-async driver-segments driver-cached driver-arena driver-taken driver-captured"
	script memory --parts "${parts// /,}" --mem 256
	memory_ok $parts
	rows 'all(x["got"] >= 246 << 20 for x in r if x["part"] not in ("driver-arena", "driver-taken"))'
	rows '[x["got"] >> 20 for x in r if x["part"] == "driver-arena"] == [192]'
	rows 'all(102 << 20 < x["got"] < 154 << 20 for x in r if x["part"] == "driver-taken")' # less than three quarters are free
}

@test "gpu/copies: windows, small and long copies, and a case that does not end well" {
	script copies --parts maps,large --seeds 1
	[ "$status" -eq 0 ]
	rows '[x["state"] for x in r if "state" in x] == [] and len(r) == 8'
	rows '[x["text"] for x in r[:3]] == ["window", "window", "no window"]'
	mkdir programs
	printf '#!/bin/sh\necho $GBPF_COPY\n' >programs/small_copies
	chmod +x programs/small_copies
	script copies --parts small --tests "$PWD/programs"
	[ "$status" -eq 1 ]
	rows 'len(r) == 9 and all(x["state"] == "FAILED" and "printed" in x["why"] for x in r)'
	nothing_left
}

@test "gpu/memory: computations at twice the limit have the results that they have without gBPF" {
	script memory --parts swap --mem 64
	[ "$status" -eq 0 ]
	rows "[(x['part'], x['state'], x['wrong']) for x in r] == [('swap-' + p, 'ok', 0) for p in ('one', 'threads', 'large', 'handles', 'async', 'managed')]"
	nothing_left
}

# A giver may have no moment in which its memory can leave, on a busy machine: then a call is refused, which is a figure and no fault.
@test "gpu/memory: a full GPU gives memory to another virtual GPU, and what gives it keeps its data" {
	script memory --parts give --mem 256
	[ "$status" -eq 0 ]
	rows '[(x["part"], len(x["ms"]), x["wrong"]) for x in r] == [(p, 5, 0) for p in ("give-idle", "give-soon", "give-busy")]'
	rows 'all(x["state"] == ("MISSED" if x["refused"] else "ok") for x in r)'
	rows 'all(x["free_full"] < 32 << 20 and x["out"] + x["free_full"] >= (5 - x["refused"]) * (32 << 20) for x in r)'
	rows 'r[0]["refused"] < 5 and [x["rounds"] > 0 for x in r] == [False, False, True]'
	nothing_left
}

@test "gpu/memory: steps of training as graphs have their results without gBPF, and other ones are found" {
	script memory --parts training --mem 256
	[ "$status" -eq 0 ]
	rows '[(x["part"], x["state"], x["wrong"]) for x in r] == [("training-" + p, "ok", 0) for p in ("fits", "less")]'
	rows 'all(x["ms"] > 0 and x["plain_ms"] > 0 and x["limit"] >= 64 << 20 for x in r)'
	FAKE_DIFFERS=1 script memory --parts training-less --mem 256
	[ "$status" -eq 1 ]
	rows '[x["why"] for x in r] == ["not those without gBPF: digest"]'
	nothing_left
}

@test "gpu/memory: one entry point, two at once, and a program that sleeps" {
	script memory --parts by-async,by-node,by-array-3d,by-create+by-alloc,sleeper --mem 256
	memory_ok by-async by-node by-array-3d by-create+by-alloc sleeper
	rows 'all(x["got"] + x["held"] == x["total"] and x["got"] == x["free_empty"] for x in r[:4])'
	rows 'r[4]["asleep"] == 2 << 20 < r[4]["got"] == r[4]["ledger"] - (2 << 20)'
	rm -f rows.json
	script memory --parts nosuch --mem 256
	[ "$status" -eq 1 ]
}

@test "gpu/probe_code counts exactly, and compares the forms" {
	script probe_code --rounds 1
	[ "$status" -eq 0 ]
	rows 'r[0]["ok"] and [x["what"] for x in r[1:7]] == ["form"] * 6'
	rows '[x["form"] for x in r[7:]] == ["original", "gate", "block_store", "block_count", "block_enter", "both", "argument"] * 5'
	rows 'all(x["us"] > 0 and x["ratio"] > 0 for x in r[7:]) and r[7]["ratio"] == 1'
	nothing_left
}

@test "gpu/probes: conformance, exact counts with PTX and of machine code, cycles under load" {
	script probes --parts bpft,ptx,code,numbers,tools,cycles --cycles 2 --launches 100
	[ "$status" -eq 0 ]
	rows '[x["what"] for x in r] == ["bpft", "ptx", "code", "numbers", "tools", "cycles"]'
	script probes --parts torch --operations nothing
	[ "$status" -eq 1 ]
	nothing_left
}

@test "gpu/gpus swaps the policies under two programs, and compares each with the program without gBPF" {
	script gpus --parts independent --policies fifo,cfs --seconds 0.2
	[ "$status" -eq 0 ]
	rows '[(x["kind"], x["policy"]) for x in r] == [("independent", p) for p in ("", "cfs", "fifo")]'
	rows 'all(abs(x["part"][i] - x["rate"][i] / r[0]["rate"][i]) < 1e-9 for x in r if x["policy"] for i in (0, 1))'
	nothing_left
}

@test "gpu/gpus measures a share of two GPUs, two jobs on both, and requests next to one" {
	script gpus --parts share,jobs,latency --policies fifo,cfs --seconds 0.2
	[ "$status" -eq 0 ]
	rows '[(x["kind"], x.get("policy")) for x in r] == [("share independent", None), ("share ddp", None)] + [(k, p) for k in ("jobs", "latency") for p in ("", "fifo", "cfs")]'
	rows 'all(0 < x["part"][i] <= 1.01 and x["rate"][i] > 0 for x in r[:2] for i in (0, 1))'
	rows 'all(x["part"][i] > 0 and x["wrong"] == 0 for x in r[2:5] for i in (0, 1))'
	rows 'all(x["p99"] > 0 and x["alone"] > 0 and 0 <= x["open"] <= 1 and x["wrong"] == 0 for x in r[5:])'
	nothing_left
}

@test "gpu/gpus measures a program with two GPUs, ways to the other GPU's memory, and survivors of kills" {
	script gpus --parts tensor,peers,kills --policies fifo --seconds 0.2 --rounds 4
	[ "$status" -eq 0 ]
	rows '[(x["kind"], x["policy"]) for x in r[:2]] == [("tensor", p) for p in ("", "fifo")] and r[1]["wrong"] == 0'
	rows '[(x["answers"], x["differ"]) for x in r[2:4]] == [(30, [])] * 2'
	rows '[(x["way"], x["policy"]) for x in r[4:16]] == [(w, p) for w in ("all_reduce", "registered", "symmetric", "ipc") for p in ("without", "fifo", "vgpu")]'
	rows '[(x["policy"], x["what"]) for x in r[16:]] == [("without", w) for w in ("nothing", "kill", "stop")] + [("fifo", w) for w in ("nothing", "kill", "stop", "gbpfd")]'
	rows 'all(x["losses"] == 1 and x["before"][0] > 0 and x["after"][0] > 0 for x in r[16:])'
	nothing_left
}
