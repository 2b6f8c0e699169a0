# The history has room for every user, and the audit log says who changed what.
load helper

setup() {
	cli_setup
	chmod 755 "$cli_dir" "$GBPF_RUNTIME_DIR"
	"$GBPF" run --device soft true
}

need_root() { [ "$(id -u)" -eq 0 ] || skip "needs root to become another user"; }
other() { setpriv --reuid 65534 --regid 65534 --clear-groups "$GBPF" "$@"; }

@test "the audit log names user, process, action, version and object" {
	test_policies .
	"$GBPF" policy swap good.bpf.o
	"$GBPF" policy rollback
	"$GBPF" off
	"$GBPF" on
	"$GBPF" policy unload
	run "$GBPF" events --audit
	echo "$output"
	[[ "$output" == *"policy.swap"*"user $(id -u): 'good' version 2 "*"object "* ]]
	[[ "$output" == *"policy.rollback"*"'fair' version 1 "* ]]
	[[ "$output" == *"policy.unload"* ]]
	run "$GBPF" --json events --audit
	json '[e["kind"] for e in d["events"]] == ["serve", "policy.swap", "policy.rollback", "off", "on", "policy.unload"]'
	json "all(e['uid'] == $(id -u) and e['pid'] > 0 for e in d['events'])"
	json 'd["events"][1]["hash"] != d["events"][2]["hash"] and len(d["events"][1]["hash"]) == 16'
	hash=$(eventually gets 'd["hash"]' "$GBPF" policy show 2)
	run "$GBPF" --json events --audit
	json "d['events'][1]['hash'] == '$hash'"
	grep -q "audit: action=policy.swap uid=$(id -u) pid=[0-9]* hash=$hash: 'good'" "$GBPF_RUNTIME_DIR/gbpfd.log"
}

@test "a refused policy and a changed map are in the audit log, the map in the history, too" {
	test_policies .
	run "$GBPF" policy swap ./verdict.bpf.o
	[ "$status" -eq 4 ]
	"$GBPF" policy swap many_maps.bpf.o
	"$GBPF" map set clocks '[1, 2, 3, 4]'
	"$GBPF" map set clocks '[1, 2, 3, 5]'
	run "$GBPF" --json events --audit
	echo "$output"
	json 'any(e["kind"] == "policy.swap" and "verdict" in e["text"] and "refused" in e["text"] and e["hash"] for e in d["events"])'
	json '[e["text"].count("4]") for e in d["events"] if e["kind"] == "map.set"] == [1, 0]'
	run "$GBPF" events
	[[ "$output" == *"map"*"user $(id -u): version "*clocks=* ]]
}

@test "the audit log survives a restart and is followed" {
	"$GBPF" policy swap fifo
	pid=$("$GBPF" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["daemon"]["pid"])')
	"$GBPF" -q shutdown
	eventually has_exited "$pid"
	"$GBPF" run --device soft true
	"$GBPF" events --audit -f >log &
	follower=$!
	eventually grep -q "policy.swap.*fifo" log
	"$GBPF" policy swap lc_first
	eventually grep -q "policy.swap.*lc_first" log
	kill -TERM $follower
	wait $follower
	grep -q shutdown log
	[ "$(stat -c %a "$GBPF_STATE_DIR/audit.jsonl")" = 600 ]
}

@test "a changed virtual GPU is in the audit log with the old and new values" {
	"$GBPF" vgpu create train --mem 64M --compute 20
	"$GBPF" vgpu set train --mem 96M --compute 25 --show mem --burst on
	"$GBPF" vgpu set train --user "$(id -u)"
	"$GBPF" vgpu set train --compute 25
	run "$GBPF" --json events --audit
	echo "$output"
	json '[e["text"] for e in d["events"] if e["kind"] == "vgpu.set"] == ["virtual GPU train is changed: " + t for t in (
		"mem 64 MiB -> 96 MiB, compute 20 -> 25, show all -> mem, burst off -> on", "users none -> '"$(id -u)"'", "no value differs")]'
}

@test "what a user sets for its own program is in the audit log, at most once a minute" {
	need_root
	mkdir -m 700 own
	chown 65534 own
	XDG_RUNTIME_DIR="$cli_dir/own" other run --name guest -- "$GBPF_PREFIX/lib/gbpf/samples/batch" --kernel-us 100 --blocks 1 >/dev/null 3>&- &
	guest=$!
	tenant=$(pid_of guest)
	"$GBPF" set "$tenant" --weight 50
	for weight in {101..105}; do # within the minute
		other -q set "$tenant" --weight "$weight"
	done
	kill -TERM "$tenant"
	wait "$guest" || true
	run "$GBPF" --json events --audit
	echo "$output"
	json '[(e["uid"], e["text"].split("weight ")[1]) for e in d["events"] if e["kind"] == "set"] == [(0, "50"), (65534, "101")]'
}

@test "other users may not read the audit log nor write to it" {
	need_root
	run other events --audit
	[ "$status" -eq 6 ]
	run other policy swap fifo
	[ "$status" -eq 6 ]
	run "$GBPF" --json events --audit
	json '[e["kind"] for e in d["events"]] == ["serve"]'
}

@test "a user that floods the history loses its own events, not those of others" {
	need_root
	"$GBPF" policy swap fifo
	python3 "$BATS_TEST_DIRNAME/flood.py" 65533 garbage "$GBPF_RUNTIME_DIR" 3>&- &
	flooder=$!
	left_out() { "$GBPF" --json status | python3 -c 'import json,sys; sys.exit(json.load(sys.stdin)["counters"]["events_left_out"] < 100)'; }
	eventually left_out
	mkdir -m 700 own
	chown 65534 own
	XDG_RUNTIME_DIR="$cli_dir/own" run other run --name guest -- "$GBPF_PREFIX/lib/gbpf/samples/kernels" vecadd
	echo "$output"
	[ "$status" -eq 0 ]
	kill -0 "$flooder"
	kill "$flooder"
	guest_ended() { "$GBPF" events | grep "guest.*exit code 0"; }
	eventually guest_ended
	run "$GBPF" events
	[[ "$output" == *"'fifo' version"* ]]
	grep -q "start .*guest" <<<"$output"
}
