# Functions of the tests of scenarios. The policy is p.bpf.o.

# passes, fails, wrong: what becomes of the scenario on standard input.
passes() {
	cat >s.scenario
	run "$GBPF" policy test p.bpf.o s.scenario
	echo "$output"
	[ "$status" -eq 0 ]
}

# fails WORD...: the message has each of them.
fails() {
	local w
	cat >s.scenario
	run "$GBPF" policy test p.bpf.o s.scenario
	echo "$output"
	[ "$status" -eq 1 ]
	for w in "$@"; do
		[[ "$output" == *"$w"* ]]
	done
}

# wrong LINE COLUMN WORD...: unusable, and the caret points there.
wrong() {
	local line=$1 column=$2 w
	cat >s.scenario
	run "$GBPF" policy test p.bpf.o s.scenario
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == "✗ s.scenario:$line: "* ]]
	[ "$(printf '%s\n' "$output" | sed -n 's/^  \( *\)^$/\1/p' | tr -d '\n' | wc -c)" -eq "$((column - 1))" ]
	shift 2
	for w in "$@"; do
		[[ "$output" == *"$w"* ]]
	done
}
