# Usage, suggestions, version, completion: what is made from the table of verbs.
load helper

verbs() { "$GBPF" help --json | python3 -c 'import json,sys; [print(v["name"]) for v in json.load(sys.stdin)["verbs"]]'; }

@test "help names every verb and goes to standard output" {
	run --separate-stderr "$GBPF" help
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	for v in run cc ps set policy map device events status off on doctor bench help version; do
		[[ "$output" == *"  $v "* ]]
	done
}

@test "every verb has a usage, by help and by --help" {
	verbs | while read -r verb; do
		run --separate-stderr "$GBPF" help $verb
		[ "$status" -eq 0 ]
		[[ "$output" == "Usage: gbpf $verb"* ]]
		by_help=$output
		run --separate-stderr "$GBPF" $verb --help
		[ "$status" -eq 0 ]
		[ "$output" = "$by_help" ]
	done
}

@test "without a verb the usage goes to standard error, with code 2" {
	run --separate-stderr "$GBPF"
	[ "$status" -eq 2 ]
	[ -z "$output" ]
	[[ "$stderr" == Usage:* ]]
	run --separate-stderr "$GBPF" policy
	[ "$status" -eq 2 ]
	[[ "$stderr" == "Usage: gbpf policy"* ]]
}

@test "a misspelt verb names the nearest" {
	run --separate-stderr "$GBPF" rnu
	[ "$status" -eq 2 ]
	[ -z "$output" ]
	[[ "$stderr" == *"unknown verb 'rnu'. Did you mean 'run'?"* ]]
	run --separate-stderr "$GBPF" policy sawp
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"Did you mean 'swap'?"* ]]
	run --separate-stderr "$GBPF" help policcy
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"Did you mean 'policy'?"* ]]
	run --separate-stderr "$GBPF" help ps set
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"gbpf ps has no verb 'set'. See: gbpf help ps"* ]]
}

@test "ls and list are one verb" {
	for group in policy map probe vgpu; do
		run "$GBPF" "$group" ls --help
		[ "$status" -eq 0 ]
		[ "$output" = "$("$GBPF" "$group" list --help)" ]
	done
}

@test "a verb's beginning is not the verb" {
	run "$GBPF" pol list
	[ "$status" -eq 2 ]
	run "$GBPF" policy che x
	[ "$status" -eq 2 ]
}

@test "what is far from every verb is not guessed at" {
	run --separate-stderr "$GBPF" frobnicate
	[ "$status" -eq 2 ]
	[[ "$stderr" != *"Did you mean"* ]]
	[[ "$stderr" == *"gbpf help"* ]]
}

@test "a misspelt option names the nearest" {
	run -2 --separate-stderr "$GBPF" ps --whhy
	[[ "$stderr" == *"'--whhy'. Did you mean '--why'?"* ]]
	run -2 --separate-stderr "$GBPF" ps --jsn
	[[ "$stderr" == *"Did you mean '--json'?"* ]]
	run --separate-stderr "$GBPF" events --follw
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"Did you mean '--follow'?"* ]]
}

@test "values of options are checked" {
	for words in "set --class latencyy 1" "set --weight 0 1" "set --weight 10001 1" "set --weight 5x 1" \
		"--color sometimes ps" "--timeout soon ps" "set notapid --weight 3" "events --since tomorrow" "events --since 24:00" "events --until 2026-02-30" "events --since 2026-11-27 --until 2026-11-26" "events -f --until 22:00" \
		"policy rollback -1" "policy rollback zero" "doctor --device gpu" "bench dev hook --repeat 0" "bench dev policy --ms 0" "ps --json=1" "set 1"; do
		run --separate-stderr "$GBPF" $words
		echo "$words: $status $stderr"
		[ "$status" -eq 2 ]
		[[ "$stderr" == "gbpf: "* ]]
	done
	run --separate-stderr "$GBPF" set --class latencyy 1
	[[ "$stderr" == *"Did you mean 'latency'?"* ]]
}

@test "missing and surplus arguments are wrong usage" {
	for words in "policy load" "policy check" "set" "set --class batch" "ps 1" "policy list x" "status now" "set --class"; do
		run "$GBPF" $words
		echo "$words: $status"
		[ "$status" -eq 2 ]
	done
}

@test "an error under --json is one document on standard output" {
	for words in "--json rnu" "rnu --json" "--json ps --whhy" "--json set 1" "--json policy load nosuchpolicy"; do
		run --separate-stderr "$GBPF" $words
		[ "$status" -ne 0 ]
		[ -z "$stderr" ]
		json 'd["schema"] == "gbpf.error/1" and d["error"]["code"] and d["error"]["message"] and "hint" in d["error"]'
	done
}

@test "version, also as an option and as JSON" {
	run "$GBPF" version
	[ "$status" -eq 0 ]
	[[ "$output" == "gbpf "[0-9]* ]]
	by_verb=$output
	run "$GBPF" --version
	[ "$output" = "$by_verb" ]
	for program in gbpfd gbpf-softgpu; do
		run "$GBPF_PREFIX/bin/$program" --version
		[ "$output" = "$program ${by_verb#gbpf }" ]
	done
	run "$GBPF" version --json
	json 'd["schema"] == "gbpf.version/1" and d["protocol"] == 1'
}

@test "help --json holds the whole table" {
	run "$GBPF" help --json
	json 'd["schema"] == "gbpf.help/1" and {"run", "policy check", "bench latency"} <= {v["name"] for v in d["verbs"]}'
}

@test "options are taken before and after the verb, and in one word" {
	run "$GBPF" --json version
	json 'd["version"]'
	run "$GBPF" --color=never --timeout=5 version
	[ "$status" -eq 0 ]
}

@test "colour only when asked for, and not under NO_COLOR" {
	run "$GBPF" nosuch
	[[ "$output" != *$'\033'* ]]
	run -3 "$GBPF" --color always ps
	[[ "$output" == *$'\033'* ]]
	NO_COLOR=1 run -3 "$GBPF" --color auto ps
	[[ "$output" != *$'\033'* ]]
}

@test "output that cannot be written is a failure" {
	run bash -c '"$0" help >/dev/full' "$GBPF"
	[ "$status" -eq 1 ]
	[[ "$output" == *"standard output"* ]]
}
