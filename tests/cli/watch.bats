# Swaps that take themselves back.
load helper

VECADD=("$GBPF_PREFIX/lib/gbpf/samples/kernels" vecadd)

setup() {
	cli_setup
	"$GBPF" run --device soft true
	"$GBPF" policy swap fair
}

active() { "$GBPF" --json policy list | python3 -c '
import json, sys
d = json.load(sys.stdin)
print([v["name"] for v in d["versions"] if v["version"] == d["active"]][0])'; }

@test "a gbpfd that dies during a watch: the message says that the version is active" {
	"$GBPF" policy swap lc_first --watch 1h --rollback-if 'launches>=1' >out 2>err &
	local pid=$! code=0
	eventually test -s out
	kill_gbpfd
	wait "$pid" || code=$?
	cat err
	[ "$code" -eq 3 ]
	grep -q "version [0-9]* is active and was watched, and the result is not known: gbpfd" err
	grep -q "gbpf policy watch" err
	"$GBPF" run --device soft true
	[ "$(active)" = lc_first ]
	run "$GBPF" --json policy watch
	json 'd["state"] == "watching"'
}

@test "a condition that holds goes back, and the exit code says so" {
	run "$GBPF" policy swap lc_first --watch 60s --rollback-if 'requests>=0'
	echo "$output"
	[ "$status" -eq 9 ]
	[[ "$output" == *"rolled back to version"*"requests>=0: it was 0"* ]]
	[ "$(active)" = fair ]
	"$GBPF" events | grep -q "rolled back"
}

@test "a watch counts a process that is late for the version that it watches" {
	"$GBPF" run --device soft --name web -- "$GBPF_PREFIX/lib/gbpf/samples/lcserve" --rate 50 --requests 100000 >web.out 2>&1 &
	local pid
	pid=$(eventually gets '[t["pid"] for t in d["tenants"] if t["name"] == "web" and t["state"] not in ("new", "starting", "queued")][0]' "$GBPF" ps)
	kill -STOP "$pid"
	eventually grep -q '^State:[[:space:]]*T' "/proc/$pid/status"
	run "$GBPF" policy swap lc_first --watch 60s --rollback-if 'late>0'
	kill -CONT "$pid"
	echo "$output"
	[ "$status" -eq 9 ]
	[[ "$output" == *"late>0: it was 1"* ]]
	[ "$(active)" = fair ]
}

@test "a rollback after that of a watch returns to the last good version" {
	"$GBPF" policy swap fifo
	run "$GBPF" policy swap lc_first --watch 60s --rollback-if 'requests>=0'
	echo "$output"
	[ "$status" -eq 9 ]
	[[ "$output" == *"rolled back to version "*" in "*": requests>=0"* ]]
	[ "$(active)" = fifo ]
	"$GBPF" policy rollback
	[ "$(active)" = fair ]
	"$GBPF" policy rollback
	[ "$(active)" = fifo ]
}

@test "without a last good version a rollback says which version is active" {
	"$GBPF" shutdown
	rm -r "$GBPF_STATE_DIR"/*
	"$GBPF" run --device soft true
	run "$GBPF" policy swap lc_first --watch 60s --rollback-if 'requests>=0'
	[ "$status" -eq 9 ]
	run "$GBPF" policy rollback
	echo "$output"
	[ "$status" -eq 5 ]
	[[ "$output" == *"no previous version to return to: 'fair' version 1 is active"*"version 2 was rolled back by its watch"* ]]
}

@test "a condition that does not hold keeps the version" {
	"$GBPF" shutdown
	virtual_time
	"$GBPF" run --device soft true
	"$GBPF" policy swap fair
	begin=$(virtual_ns)
	run "$GBPF" --json policy swap lc_first --watch 20s --rollback-if 'p99>6ms or helper_errors>0'
	passed=$((($(virtual_ns) - begin) / 1000000))
	echo "$output after $passed ms"
	[ "$status" -eq 0 ]
	# In a second that the commands take, 20 s pass by this clock.
	[ "$passed" -ge 20000 ] && [ "$passed" -lt $((20000 + 20000 * EVENTUALLY_SECONDS)) ]
	json 'd["watch"]["state"] == "kept"'
	[ "$(active)" = lc_first ]
}

@test "detached, it comes back at once and goes back all the same" {
	run "$GBPF" policy swap lc_first --watch 60s --rollback-if 'requests>=0' --detach
	[ "$status" -eq 0 ]
	is_back() { [ "$(active)" = fair ]; }
	eventually is_back
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

gbpfd_pid() { "$GBPF" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["daemon"]["pid"])'; }

# Ends gbpfd without a chance to write anything.
kill_gbpfd() {
	local pid
	pid=$(gbpfd_pid)
	kill -9 "$pid"
	eventually has_exited "$pid"
}

is_active() { [ "$(active)" = "$1" ]; }

# state EXPRESSION: evaluates a Python expression over d, what gbpfd has stored; state_set STATEMENT changes it.
state() { python3 -c 'import json,sys; d = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' "$GBPF_STATE_DIR/policies/state.json" "$1"; }
state_set() {
	python3 -c 'import json,sys; d = json.load(open(sys.argv[1])); exec(sys.argv[2]); json.dump(d, open(sys.argv[1], "w"))' \
		"$GBPF_STATE_DIR/policies/state.json" "$1"
}

@test "a watch continues after gbpfd was killed, and rolls back" {
	"$GBPF" policy swap lc_first --watch 1h --rollback-if 'launches>=1' --detach
	kill_gbpfd
	"$GBPF" run --device soft true
	[ "$(active)" = lc_first ]
	run "$GBPF" --json policy watch
	json 'd["state"] == "watching" and d["resumed"] and d["condition"] == "launches>=1" and d["name"] == "lc_first"'
	json '0 < d["passed_ns"] < d["watch_ns"] == 3600 * 10**9'
	"$GBPF" events | grep -q "the watch of 'lc_first' version .* continues"
	"$GBPF" run --device soft "${VECADD[@]}"
	eventually is_active fair
	"$GBPF" events | grep -q "'lc_first' version .* is rolled back .*launches>=1"
	eventually state 'd["watches"] == []'
	kill_gbpfd
	"$GBPF" run --device soft true
	[ "$(active)" = fair ]
	run "$GBPF" policy watch
	[ "$status" -eq 5 ]
}

@test "a watch that ends while gbpfd is away keeps the version, with an event that says so" {
	"$GBPF" policy swap lc_first --watch 1h --rollback-if 'launches>=1' --detach
	kill_gbpfd
	state 'd["watches"][0]["end_wall_ns"] > 0'
	state_set 'd["watches"][0]["end_wall_ns"] -= 3601 * 10**9' # an hour and a second later
	"$GBPF" run --device soft true
	[ "$(active)" = lc_first ]
	"$GBPF" events | grep -q "'lc_first' version .* stays: .*not observed until its end"
	run "$GBPF" policy watch
	[ "$status" -eq 0 ]
	[[ "$output" == *"no watch is running"*"stays"*"not observed until its end"* ]]
	eventually state 'd["watches"] == []'
	kill_gbpfd
	"$GBPF" run --device soft true
	[ "$("$GBPF" events | grep -c "not observed until its end")" -eq 1 ] # it ended once
}

@test "a watch whose previous version is missing is reported, and the version stays" {
	old=$("$GBPF" --json policy list | python3 -c 'import json,sys; print(json.load(sys.stdin)["active"])')
	"$GBPF" policy swap lc_first --watch 1h --rollback-if 'launches>=1' --detach
	kill_gbpfd
	rm "$GBPF_STATE_DIR/policies/$old.bpf.o"
	"$GBPF" run --device soft true
	[ "$(active)" = lc_first ]
	"$GBPF" events | grep -q "the watch of 'lc_first' version .* cannot continue: version $old before it is not stored"
	grep -q "cannot continue: version $old" "$GBPF_RUNTIME_DIR/gbpfd.log"
}

@test "policy watch shows the running watch, and --cancel ends it and keeps the version" {
	run "$GBPF" policy watch
	[ "$status" -eq 5 ]
	[[ "$output" == *"no version is watched"* ]]
	run "$GBPF" policy watch --cancel
	[ "$status" -eq 5 ]
	"$GBPF" policy swap lc_first --watch 1h --rollback-if 'launches>=1 or p99>6ms' --detach
	run "$GBPF" policy watch
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"watching lc_first@"*"of 3600 s"*"launches>=1 or p99>6ms"*"launches"*"p99"* ]]
	run "$GBPF" policy watch --cancel
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == "the watch of lc_first@"*"stays"* ]]
	"$GBPF" run --device soft "${VECADD[@]}"
	[ "$(active)" = lc_first ]
	"$GBPF" events | grep -q "the watch of 'lc_first' version .* is cancelled by user $(id -u)"
	run "$GBPF" --json events --audit
	json "[(e['uid'], e['pid'] > 0, bool(e['hash'])) for e in d['events'] if e['kind'] == 'policy.watch_cancel'] == [($(id -u), True, True)]"
	run "$GBPF" --json policy watch
	json 'd["state"] == "ended" and "cancelled" in d["reason"]'
	run "$GBPF" policy watch --cancel
	[ "$status" -eq 5 ]
	kill_gbpfd
	"$GBPF" run --device soft true
	[ "$(active)" = lc_first ]
	run "$GBPF" policy watch
	[ "$status" -eq 5 ]
}

@test "another user may look at a watch and may not cancel it" {
	[ "$(id -u)" -eq 0 ] || skip "needs root to become another user"
	chmod 755 "$cli_dir" "$GBPF_RUNTIME_DIR"
	"$GBPF" policy swap lc_first --watch 1h --rollback-if 'launches>=1' --detach
	other() { setpriv --reuid 65534 --regid 65534 --clear-groups "$GBPF" "$@"; }
	run other policy watch
	[ "$status" -eq 0 ]
	run other policy watch --cancel
	echo "$output"
	[ "$status" -eq 6 ]
	run "$GBPF" --json policy watch
	json 'd["state"] == "watching"'
}

@test "the loss of a volatile version's watch is reported" {
	"$GBPF" policy swap --volatile lc_first --watch 1h --rollback-if 'launches>=1' --detach
	kill_gbpfd
	"$GBPF" run --device soft true
	[ "$(active)" = fair ]
	"$GBPF" events | grep -q "the watch of 'lc_first' version .* cannot continue: the version is not active"
}

@test "a watch that is cancelled without a disk ends, with a warning and code 10" {
	"$GBPF" policy swap lc_first --watch 1h --rollback-if 'launches>=1' --detach
	mkdir "$GBPF_STATE_DIR/policies/state.json.part"
	run --separate-stderr "$GBPF" policy watch --cancel
	echo "$output $stderr"
	[ "$status" -eq 10 ]
	[[ "$stderr" == *"not stored"* ]]
	run "$GBPF" --json policy watch
	json 'd["state"] == "ended"'
}

@test "watches in state.json that cannot be read are reported, and their versions stay" {
	"$GBPF" policy swap lc_first --watch 1h --rollback-if 'launches>=1' --detach
	kill_gbpfd
	state_set 'd["watches"][0]["condition"] = "p99>6 elephants"; d["watches"].append({"version": -1})'
	"$GBPF" run --device soft true
	[ "$(active)" = lc_first ]
	"$GBPF" events | grep -q "the watch of 'lc_first' version .* cannot continue: its condition cannot be read"
	"$GBPF" events | grep -q "1 watch in state.json cannot be read"
	eventually state 'd["watches"] == []'
}

@test "a state.json that is no JSON is reported" {
	kill_gbpfd
	printf '{"next":3,"watches":[{"vers' >"$GBPF_STATE_DIR/policies/state.json"
	"$GBPF" run --device soft true
	[ "$(active)" = fair ]
	"$GBPF" events | grep -q "state.json cannot be read"
}
