# Every shipped policy in turn, while a latency and a batch program run: no program starves, nothing fails, results stay right.
load helper

SAMPLES=$GBPF_PREFIX/lib/gbpf/samples

names() { (cd "$GBPF_PREFIX/lib/gbpf/policies" && for f in *.bpf.o examples/*.bpf.o; do echo "${f%.bpf.o}"; done); }

# launches NAME: prints how often the program has launched so far, at least once.
launches() { eventually gets "[t['stats']['launches'] for t in d['tenants'] if t['name'] == '$1'][0]" "$GBPF" ps; }

# passes NAME N: waits until the program has launched more than N times.
passes() { eventually tenant "$1" "t['stats']['launches'] > $2"; }

start_both() {
	"$GBPF" run --device soft --class latency --name web -- "$SAMPLES/lcserve" --rate 20 >web.out 2>web.err 3>&- &
	web=$!
	"$GBPF" run --device soft --class batch --name train -- "$SAMPLES/batch" --kernel-us 300 >train.out 2>train.err 3>&- &
	train=$!
	passes web 10
	passes train 10
}

# They check what they compute, and say so when they end.
stop_both() {
	local p
	for p in "$web" "$train"; do
		kill "$p"
		wait "$p"
	done
	cat web.out train.out
	grep -q "wrong 0" web.out
	grep -q "wrong 0" train.out
}

# No helper failed and no verdict was out of range; a busy machine may be slow.
no_errors() {
	eventually shows 'd["name"] == "'"${1#examples/}"'" and not [k for k in ("helper_errors", "verdict_errors") if d["counters"][k]]' "$GBPF" policy show
}

@test "under every policy both go on, without an error" {
	start_both
	for p in $(names); do
		"$GBPF" policy swap "$p"
		w=$(launches web) t=$(launches train)
		passes web "$((w + 20))"
		passes train "$((t + 3))"
		no_errors "$p"
	done
	stop_both
}

@test "swapped in quick succession, results stay right and the last one is in force" {
	start_both
	for i in 1 2 3; do
		for p in $(names); do
			"$GBPF" policy swap "$p"
		done
	done
	w=$(launches web) t=$(launches train)
	passes web "$((w + 20))"
	passes train "$((t + 3))"
	no_errors "$p"
	stop_both
	run "$GBPF" events
	[[ "$output" != *"verdict"* ]]
	[[ "$output" != *"did not load"* ]]
}

# What auto has stored of a batch program says that it leaves soon, for which 90 % of its time are needed; the next ones count, too.
leaves_soon() {
	"$GBPF" --json map dump profiles | python3 -c 'import json,sys
sys.exit(not any(e["value"]["soon_ns"] * 100 > e["value"]["seen_ns"] * 92 for e in json.load(sys.stdin)["entries"]))'
}

@test "auto: batch that can be stopped between blocks starts in the shared lane the next time" {
	"$GBPF" run --device soft true
	"$GBPF" policy swap auto
	"$GBPF" run --device soft --class batch --name first -- "$SAMPLES/batch" --kernel-us 100 >first.out 3>&- &
	passes first 10
	eventually tenant first 't["lane"] == "process"'
	eventually leaves_soon # what it began with counts for little then
	kill $!
	wait $!
	"$GBPF" run --device soft --class batch --name second -- "$SAMPLES/batch" --kernel-us 100 >second.out 3>&- &
	batch=$!
	passes second 10
	eventually tenant second 't["lane"] == "shared"'
	"$GBPF" run --device soft --class latency --name web -- "$SAMPLES/lcserve" --rate 20 >web.out 3>&- &
	passes web 20
	eventually tenant web 't["lane"] == "shared"'
	kill $!
	wait $!
	kill "$batch"
	wait "$batch"
	cat ./*.out
	[ "$(grep -c "wrong 0" first.out second.out web.out | grep -c ":1")" -eq 3 ]
}
