#!/usr/bin/env bats
# Programs and gbpfd are killed at critical moments while other programs run on the soft GPU. Under any load of this machine,
# all others continue, every result is correct, and nothing stays allocated, suspended or running. tests/gpu/kills measures
# the times on a card.

load helpers

kills() {
	TMPDIR=$GBPF_RUNTIME_DIR run tests/gpu/kills --gbpf "$GBPF_PREFIX/bin/gbpf" --device soft --patience "$EVENTUALLY_SECONDS" \
		--json "$GBPF_RUNTIME_DIR/kills.json" "$@"
	echo "$output"
}

all_done() { # CASES
	python3 - "$GBPF_RUNTIME_DIR/kills.json" "$1" <<-'PY'
		import json, sys
		d = json.load(open(sys.argv[1]))
		assert [c['case'] for c in d['cases']] == sys.argv[2].split(',')
		for c in d['cases']:
		    assert c['done'] == c['wanted'] and c['wrong'] == 0 and not c['problems'], c
		    assert all(f['n'] == c['done'] for f in c['figures'].values()), c
	PY
}

nothing_left() {
	if ls -d "$GBPF_RUNTIME_DIR"/gbpf-kills-* 2>/dev/null; then
		return 1
	fi
	if grep -lsz "GBPF_RUNTIME_DIR=$GBPF_RUNTIME_DIR/gbpf-kills-" /proc/[0-9]*/environ; then
		return 1
	fi
}

@test "a latency program killed in a request, gbpfd killed while it preempts, a batch program killed while it is held" {
	kills --kills 2 --cases latency,daemon,batch
	[ "$status" -eq 0 ]
	all_done latency,daemon,batch
	nothing_left
}

@test "neighbours in the shared lane of batch programs that are killed have no error and no wrong value" {
	kills --kills 4 --cases neighbour
	[ "$status" -eq 0 ]
	all_done neighbour
	nothing_left
}

@test "a program killed, and gbpfd killed, while memory leaves the device or comes back" {
	kills --kills 3 --cases swap,swap-daemon
	[ "$status" -eq 0 ]
	all_done swap,swap-daemon
	python3 -c 'import json, sys; sys.exit(any(c["memory_used"][1] > c["memory_used"][0] or not c["moved_mib"]
		for c in json.load(open(sys.argv[1]))["cases"]))' "$GBPF_RUNTIME_DIR/kills.json"
	nothing_left
}

@test "kills reports a failure if no program makes progress, and leaves nothing behind" {
	kills --kills 1 --cases batch --stop --patience 0.5
	[ "$status" -eq 1 ]
	[[ "$output" == *"no progress within"* ]]
	nothing_left
}
