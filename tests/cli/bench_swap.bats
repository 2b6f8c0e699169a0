# `gbpf bench dev swap`, in small.
load helper

setup() { cli_setup; }

@test "swaps lose and mix nothing, and no process that the benchmark started remains" {
	export TMPDIR=$PWD/tmp
	mkdir "$TMPDIR"
	run "$GBPF" --json bench dev swap --processes 2 --swaps 20
	echo "$output"
	[ "$status" -eq 0 ]
	json 'd["schema"] == "gbpf.bench.swap/1" and d["lost"] == 0 and d["mixed"] == 0 and d["swaps"] == 20'
	json 'd["changes"] > 0 and d["swap_calls"] > 1000 and d["control_calls"] > 1000'
	[ -z "$(ls "$TMPDIR")" ]
}

@test "interrupted, it ends what it started" {
	export TMPDIR=$PWD/tmp
	mkdir "$TMPDIR"
	"$GBPF" bench dev swap --processes 1 --swaps 20000 >out 2>&1 3>&- &
	pid=$!
	is_swapping() { [ -e "$TMPDIR"/gbpf-bench-*/gbpfd0/state/policies/5.json ]; }
	eventually is_swapping
	kill "$pid"
	wait "$pid" || true
	[ -z "$(ls "$TMPDIR")" ]
}

@test "numbers out of range are wrong usage" {
	run "$GBPF" bench dev swap --processes 0
	[ "$status" -eq 2 ]
	run "$GBPF" bench dev swap --swaps 1000000
	[ "$status" -eq 2 ]
}
