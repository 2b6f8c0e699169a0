# Every shipped policy in turn, while a latency and a batch program run: no program starves, nothing fails, results stay right.
load helper

SAMPLES=$GBPF_PREFIX/lib/gbpf/samples

names() { for f in "$GBPF_PREFIX"/lib/gbpf/policies/*.bpf.o; do basename "$f" .bpf.o; done; }

# launches NAME: of the program, so far.
launches() {
	"$GBPF" --json ps | python3 -c 'import json,sys
print([t.get("stats", {}).get("launches", 0) for t in json.load(sys.stdin)["tenants"] if t["name"] == sys.argv[1]][0])' "$1"
}

# beyond NAME N: it has launched more than N times.
beyond() { [ "$(launches "$1")" -gt "$2" ]; }

start_both() {
	"$GBPF" run --device soft --class latency --name web -- "$SAMPLES/lcserve" --rate 20 >web.out 2>web.err 3>&- &
	web=$!
	"$GBPF" run --device soft --class batch --name train -- "$SAMPLES/batch" --kernel-us 300 >train.out 2>train.err 3>&- &
	train=$!
	eventually beyond web 10
	eventually beyond train 10
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
	run "$GBPF" --json policy show
	json 'd["name"] == "'"$1"'" and not [k for k in ("helper_errors", "verdict_errors") if d["counters"][k]]'
}

@test "under every policy both go on, without an error" {
	start_both
	for p in $(names); do
		"$GBPF" policy swap "$p"
		w=$(launches web) t=$(launches train)
		eventually beyond web "$((w + 20))"
		eventually beyond train "$((t + 3))"
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
	eventually beyond web "$((w + 20))"
	eventually beyond train "$((t + 3))"
	no_errors "$p"
	stop_both
	run "$GBPF" events
	[[ "$output" != *"verdict"* ]]
	[[ "$output" != *"did not load"* ]]
}

lane_of() {
	"$GBPF" --json ps | python3 -c 'import json,sys
print([t["lane"] for t in json.load(sys.stdin)["tenants"] if t["name"] == sys.argv[1]][0])' "$1"
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
	eventually beyond first 10
	[ "$(lane_of first)" = process ]
	eventually leaves_soon # what it began with counts for little then
	kill $!
	wait $!
	"$GBPF" run --device soft --class batch --name second -- "$SAMPLES/batch" --kernel-us 100 >second.out 3>&- &
	batch=$!
	eventually beyond second 10
	[ "$(lane_of second)" = shared ]
	"$GBPF" run --device soft --class latency --name web -- "$SAMPLES/lcserve" --rate 20 >web.out 3>&- &
	eventually beyond web 20
	[ "$(lane_of web)" = shared ]
	kill $!
	wait $!
	kill "$batch"
	wait "$batch"
	cat ./*.out
	[ "$(grep -c "wrong 0" first.out second.out web.out | grep -c ":1")" -eq 3 ]
}
