# The verbs that talk to gbpfd, with one of our own.
load helper

setup() {
	cli_setup
	"$GBPF" run --device soft true
}

pid_of_daemon() { "$GBPF" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["daemon"]["pid"])'; }
active() { "$GBPF" --json policy list | python3 -c 'import json,sys; print(json.load(sys.stdin)["active"])'; }

@test "run starts gbpfd once" {
	first=$(pid_of_daemon)
	"$GBPF" run --device soft true
	[ "$(pid_of_daemon)" = "$first" ]
}

@test "status reports it, also as JSON" {
	run "$GBPF" status
	[ "$status" -eq 0 ]
	[[ "$output" == *uptime* ]]
	[[ "$output" == *"$GBPF_RUNTIME_DIR"* ]]
	run "$GBPF" --json status
	json 'd["schema"] == "gbpf.status/1" and d["daemon"]["pid"] > 0 and d["daemon"]["device"] == "soft"'
}

@test "shutdown ends it, and the next call gets 3" {
	pid=$(pid_of_daemon)
	run "$GBPF" shutdown
	[ "$status" -eq 0 ]
	eventually has_exited "$pid"
	run -3 "$GBPF" ps
}

@test "an example is loaded, checked and tested as examples/NAME, and its version has its name alone" {
	active_is() { eventually shows 'd["name"] == "'"$1"'"' "$GBPF" policy show; }
	of_mlfq() { "$GBPF" policy show | grep -q 'map accounts'; } # fifo has no map
	run "$GBPF" policy swap examples/mlfq
	[ "$status" -eq 0 ]
	[[ "$output" == "swapped fair@1 → mlfq@2 in "* ]]
	active_is mlfq
	"$GBPF" policy load --volatile examples/gang && false # another policy is active
	"$GBPF" policy unload
	"$GBPF" policy load examples/gang
	active_is gang
	"$GBPF" policy test examples/mlfq
	run "$GBPF" policy check examples/mlfq examples/band fair
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 3 ]
	# Such a file of one's own is found where none is installed, and needs ./ where one is.
	mkdir examples
	cp "$GBPF_PREFIX/lib/gbpf/policies/fifo.bpf.o" examples/mine
	echo text >examples/mlfq
	"$GBPF" policy check examples/mlfq
	run "$GBPF" policy check ./examples/mlfq
	[ "$status" -eq 1 ]
	cp examples/mine examples/mlfq
	"$GBPF" policy swap examples/mine
	active_is mine
	"$GBPF" policy swap examples/mlfq
	of_mlfq
	"$GBPF" policy swap ./examples/mlfq
	of_mlfq && false
	"$GBPF" shutdown
	"$GBPF_PREFIX/bin/gbpfd" --device soft --policy examples/mlfq 3>&-
	of_mlfq
	"$GBPF" shutdown
	"$GBPF_PREFIX/bin/gbpfd" --device soft --policy examples/mine 3>&-
	active_is mine
}

@test "an empty list says so on standard error" {
	run -0 --separate-stderr "$GBPF" ps # settled: no program has used the GPU
	[ -z "$output" ]
	[[ "$stderr" == *"gbpf run"* ]]
	run --separate-stderr "$GBPF" -q ps # settled: likewise
	[ -z "$stderr" ]
	eventually shows 'd == {"schema": "gbpf.ps/1", "tenants": []}' "$GBPF" ps
}

@test "fair is the policy to begin with" {
	run "$GBPF" --json policy list
	json '[v["name"] for v in d["versions"] if v["version"] == d["active"]] == ["fair"]'
}

@test "swap, rollback and unload say what they did" {
	run "$GBPF" policy swap lc_first
	[ "$status" -eq 0 ]
	[[ "$output" =~ ^"swapped fair@"[0-9]+" → lc_first@"[0-9]+" in "[0-9.]+" "(ns|µs|ms|s)" (verified in "[0-9.]+" "(µs|ms|s)", swapped in "[0-9.]+" " ]] ||
		[[ "$output" == *" (verified in "*", waited "*" for other operations, swapped in "* ]]
	run "$GBPF" policy rollback
	[ "$status" -eq 0 ]
	[[ "$output" =~ ^"rolled back lc_first@"[0-9]+" → fair@"[0-9]+ ]]
	[[ "$output" == *" (verified before, "*"swapped in "* ]]
	run "$GBPF" policy unload
	[ "$status" -eq 0 ]
	[ "$(active)" = 0 ]
	run "$GBPF" policy load fifo
	[ "$status" -eq 0 ]
	[[ "$output" == "loaded fifo@"* ]]
}

@test "rollback to a kept version" {
	"$GBPF" policy swap fifo
	first=$(active)
	"$GBPF" policy swap lc_first
	"$GBPF" policy swap fair
	run "$GBPF" policy rollback "$first"
	[ "$status" -eq 0 ]
	[ "$(active)" = "$first" ]
	run --separate-stderr "$GBPF" policy rollback 4711
	[ "$status" -eq 5 ]
	[[ "$stderr" == *"4711"*"gbpf policy list"* ]]
}

@test "an object that an earlier gbpfd has verified is not verified again" {
	"$GBPF" shutdown
	unset GBPF_CACHE
	export GBPF_CACHE_DIR=$cli_dir/cache
	"$GBPF" run --device soft true
	run "$GBPF" --json policy swap lc_first
	json 'd["verified_before"] == False and d["total_ns"] == d["verify_ns"] + d["queued_ns"] + d["swap_ns"]'
	"$GBPF" policy swap fifo
	"$GBPF" shutdown
	"$GBPF" run --device soft true
	run "$GBPF" --json policy rollback # to lc_first, which this gbpfd has not read yet
	json 'd["name"] == "lc_first" and d["verified_before"] == True'
}

@test "load over a chosen policy is refused, swap is not" {
	"$GBPF" policy swap fifo
	run --separate-stderr "$GBPF" policy load lc_first
	[ "$status" -ne 0 ]
	[[ "$stderr" == *swap* ]]
	run "$GBPF" policy swap lc_first
	[ "$status" -eq 0 ]
}

@test "a refused policy is code 4 and changes nothing" {
	test_policies .
	"$GBPF" policy swap fifo
	before=$(active)
	run --separate-stderr "$GBPF" policy swap ./verdict.bpf.o
	[ "$status" -eq 4 ]
	[ -z "$output" ]
	[[ "$stderr" == "gbpf: policy swap: "*"verdict.bpf.c:6"*"^"* ]]
	[ "$(active)" = "$before" ]
	run --separate-stderr "$GBPF" --json policy swap ./null_lookup.bpf.o
	[ "$status" -eq 4 ]
	json 'd["error"]["code"] == "verify" and d["error"]["exit"] == 4 and d["error"]["hint"] and "^" in d["error"]["detail"]'
}

@test "what is not an object is code 1 and changes nothing" {
	test_policies .
	before=$(active)
	head -c 500 good.bpf.o >cut.bpf.o
	for f in ./cut.bpf.o ./no_hook.bpf.o /bin/true; do
		cp "$f" x.o
		run --separate-stderr "$GBPF" policy swap ./x.o
		echo "$f: $status $stderr"
		[ "$status" -eq 1 ]
	done
	[ "$(active)" = "$before" ]
}

@test "a policy that is not there is code 5, the nearest is named" {
	run --separate-stderr "$GBPF" policy swap fifoo
	[ "$status" -eq 5 ]
	[[ "$stderr" == *"Did you mean 'fifo'?"* ]]
	run "$GBPF" policy swap ./missing.bpf.o
	[ "$status" -eq 5 ]
}

@test "one's own object is loaded by its path" {
	test_policies .
	run "$GBPF" --json policy swap good.bpf.o
	[ "$status" -eq 0 ]
	json 'd["schema"] == "gbpf.policy.swap/1" and d["name"] == "good" and d["version"] > 0 and "flip_ns" in d'
	eventually prints '(?s)\Agood@.*active' "$GBPF" policy show
	for word in submit retire seen; do
		eventually prints "$word" "$GBPF" policy show
	done
	eventually shows 'd["license"] == "Apache-2.0" and {h["hook"] for h in d["hooks"]} == {"submit", "retire"}' "$GBPF" policy show
	run -5 "$GBPF" policy show 4711
}

@test "list marks the active one" {
	"$GBPF" policy swap fifo
	run "$GBPF" policy list
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" == *VERSION*NAME*STATE* ]]
	[ "$(grep -c ' active ' <<<"$output")" -eq 1 ]
	grep -q 'fifo *active' <<<"$output"
}

@test "off and on" {
	run "$GBPF" off
	[ "$status" -eq 0 ]
	run "$GBPF" --json status
	json 'd["off"] == True'
	run "$GBPF" on
	[ "$status" -eq 0 ]
	run "$GBPF" --json status
	json 'd["off"] == False'
}

@test "device lists the soft GPU" {
	run "$GBPF" device
	[ "$status" -eq 0 ]
	[[ "$output" == *soft* ]]
	run "$GBPF" --json device
	json 'd["schema"] == "gbpf.device/1" and d["devices"][0]["kind"] == "soft"'
}

@test "set of a process that is not under gBPF is code 5" {
	run --separate-stderr "$GBPF" set --class batch 1
	[ "$status" -eq 5 ]
	[[ "$stderr" == *"gbpf ps"* ]]
}

@test "events since a number and since a time" {
	"$GBPF" policy swap fifo
	run "$GBPF" events
	[ "$status" -eq 0 ]
	[[ "$output" == *fifo* ]]
	run "$GBPF" --json events
	json 'd["schema"] == "gbpf.events/1" and [e["seq"] for e in d["events"]] == sorted({e["seq"] for e in d["events"]})'
	last=$(python3 -c 'import json,sys; print(json.loads(sys.argv[1])["events"][-1]["seq"])' "$output")
	run "$GBPF" --json events --since "$last"
	json 'd["events"] == []'
	run "$GBPF" --json events --since 1h
	json 'd["events"]'
	when=$(python3 -c 'import json,sys,time; print(time.strftime("%F %T", time.localtime(json.loads(sys.argv[1])["events"][0]["wall_ns"] / 1e9)))' "$output")
	run "$GBPF" --json events --since "$when"
	json 'any("fifo" in e["text"] for e in d["events"])'
	run "$GBPF" --json events --until "$(date -d '1 hour ago' '+%F %T')"
	json 'd["events"] == []'
	"$GBPF" events --since yesterday --until 0s | grep -q fifo
	run "$GBPF" --json events --kind policy,exit
	json 'd["events"] and all(e["kind"] == "policy" for e in d["events"])'
	run --separate-stderr "$GBPF" events --kind nosuch
	[ "$stderr" = "There is no such event." ]
	run --separate-stderr "$GBPF" events --user nosuch
	[ "$status" -eq 5 ]
}

@test "events of a user are those of its programs" {
	"$GBPF" run --device soft -- "$GBPF_PREFIX/lib/gbpf/samples/batch" --seconds 0.1 >/dev/null
	of_user() { "$GBPF" --json events --user "$1" | grep -q '"kind": "exit"'; }
	eventually of_user "$(id -un)"
	of_user "$(id -u)"
	run "$GBPF" --json events --user 4294967294
	json 'd["events"] == []'
}

@test "events -f prints what happens and ends with the signal" {
	"$GBPF" events -f >log &
	follower=$!
	"$GBPF" policy swap lc_first
	eventually grep -q lc_first log
	kill -TERM $follower
	wait $follower
}

@test "events -f --json is one document a line" {
	"$GBPF" --json events -f >log &
	follower=$!
	"$GBPF" policy swap lc_first
	eventually grep -q lc_first log
	kill -TERM $follower
	wait $follower
	python3 -c 'import json; [json.loads(line)["schema"] == "gbpf.event/1" or 1 / 0 for line in open("log")]'
}

@test "events -f ends when gbpfd goes" {
	"$GBPF" events -f >log 2>err &
	follower=$!
	eventually test -s log
	"$GBPF" -q shutdown
	status=0
	wait $follower || status=$?
	[ "$status" -ne 0 ]
	grep -q '^gbpf: events:' err
}

@test "other users may look, but not change: code 6" {
	[ "$(id -u)" -eq 0 ] || skip "needs root to become another user"
	chmod 755 "$cli_dir" "$GBPF_RUNTIME_DIR"
	other() { setpriv --reuid 65534 --regid 65534 --clear-groups "$GBPF" "$@"; }
	run -0 other --json ps
	for words in "policy swap fifo" "policy unload" "policy rollback" off on shutdown; do
		run --separate-stderr other $words
		echo "$words: $status $stderr"
		[ "$status" -eq 6 ]
		[[ "$stderr" == "gbpf: "* ]]
	done
	"$GBPF" -q status
}

@test "a second gbpfd is refused" {
	run timeout "$EVENTUALLY_SECONDS" "$GBPF_PREFIX/bin/gbpfd" --foreground --device soft
	[ "$status" -eq 1 ]
	[[ "$output" == *"$(pid_of_daemon)"* || "$output" == *gbpfd* ]]
}

@test "run --socket finds the daemon of that directory" {
	other=$cli_dir/other
	mkdir -m 700 "$other"
	"$GBPF" --socket "$other/control.sock" run --device soft -- sh -c 'echo "$GBPF_RUNTIME_DIR"' >out
	[ "$(cat out)" = "$other" ]
	run "$GBPF" --socket "$other" --json status
	json 'd["runtime_dir"].endswith("/other")'
	"$GBPF" --socket "$other" -q shutdown
	"$GBPF" -q status
}

@test "a runtime directory that is a file is a failure of run, with what to do" {
	GBPF_RUNTIME_DIR=/dev/null run --separate-stderr "$GBPF" run --device soft true
	[ "$status" -eq 125 ]
	[[ "$stderr" == "gbpf: run: "* ]]
}

@test "ps says that gBPF is switched off" {
	"$GBPF" off
	run -0 --separate-stderr "$GBPF" ps # settled: gbpfd answers `off` when it is off
	[[ "$stderr" == *"switched off"*"gbpf on"* ]]
	"$GBPF" on
	run --separate-stderr "$GBPF" ps # settled: likewise for `on`
	[[ "$stderr" != *"switched off"* ]]
}

@test "events -f begins with the last ten" {
	for _ in {1..8}; do
		"$GBPF" off
		"$GBPF" on
	done
	"$GBPF" --json events -f >log &
	follower=$!
	eventually test -s log
	"$GBPF" policy swap lc_first
	eventually grep -q lc_first log
	kill -TERM $follower
	wait $follower
	[ "$(wc -l <log)" -eq 11 ]
	run "$GBPF" --json events
	json 'len(d["events"]) > 16'
}

@test "another user's program runs under root's gbpfd" {
	[ "$(id -u)" -eq 0 ] || skip "needs root to become another user"
	chmod 755 "$cli_dir" "$GBPF_RUNTIME_DIR"
	mkdir -m 700 own
	chown 65534 own
	other() {
		env XDG_RUNTIME_DIR="$cli_dir/own" setpriv --reuid 65534 --regid 65534 --clear-groups "$GBPF" "$@"
	}
	run other run --name guest -- "$GBPF_PREFIX/lib/gbpf/samples/kernels" vecadd
	echo "$output"
	[ "$status" -eq 0 ]
	eventually prints 'guest.*exit code 0' "$GBPF" events
	run other doctor --device soft
	[ "$status" -eq 0 ]
}
