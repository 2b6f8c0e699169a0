# Swaps that take themselves back.
load helper

setup() {
	cli_setup
	"$GBPF" run --device soft true
	"$GBPF" policy swap fair
}

active() { "$GBPF" --json policy list | python3 -c '
import json, sys
d = json.load(sys.stdin)
print([v["name"] for v in d["versions"] if v["version"] == d["active"]][0])'; }

@test "a condition that holds goes back, and the exit code says so" {
	run "$GBPF" policy swap lc_first --watch 60s --rollback-if 'requests>=0'
	echo "$output"
	[ "$status" -eq 9 ]
	[[ "$output" == *"rolled back to version"*"requests>=0: it was 0"* ]]
	[ "$(active)" = fair ]
	"$GBPF" events | grep -q "rolled back"
}

@test "a condition that does not hold keeps the version" {
	run "$GBPF" --json policy swap lc_first --watch 300ms --rollback-if 'p99>6ms or helper_errors>0'
	echo "$output"
	[ "$status" -eq 0 ]
	json 'd["watch"]["state"] == "kept"'
	[ "$(active)" = lc_first ]
}

@test "detached, it comes back at once and goes back all the same" {
	run "$GBPF" policy swap lc_first --watch 60s --rollback-if 'requests>=0' --detach
	[ "$status" -eq 0 ]
	is_back() { [ "$(active)" = fair ]; }
	wait_for is_back
}

@test "a bad condition says where and loads nothing" {
	run "$GBPF" policy swap lc_first --watch 60s --rollback-if 'p99[class=latency]>6'
	echo "$output"
	[ "$status" -eq 2 ]
	[[ "$output" == *"column 21"*"unit"* ]]
	run "$GBPF" policy swap lc_first --watch 60s
	[ "$status" -eq 2 ]
	run "$GBPF" policy swap lc_first --detach
	[ "$status" -eq 2 ]
	[ "$(active)" = fair ]
}
