#!/usr/bin/env bats
# probe attach --verify: forms are compared with the kernels themselves, on copies, on the soft GPU.

load helpers
load talk

blocks() {
	gbpf map dump blocks --probe 1 --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["entries"][0]["value"])'
}
counts() { [ "$(blocks)" = "$1" ]; }

# attached_to KERNEL: waits until a tool is attached to it.
attached_to() { eventually shows "any(p['kernel'] == '$1' for p in d['probes'])" gbpf probe ls; }

@test "--verify waits for equal results, and the kernel's results and counts are exact" {
	begin
	gbpf probe attach --budget none "$BUILD/count_blocks.bpf.o" --verify >"$BATS_TEST_TMPDIR/result" &
	verifier=$!
	attached_to '*'
	start
	tell "compare same 5" load "launch 4 10"
	wait "$verifier"
	cat "$BATS_TEST_TMPDIR/result"
	grep -qE "compared with the kernels themselves: [12] equal, 0 differing, 0 not compared" "$BATS_TEST_TMPDIR/result"
	eventually shows '"%(equal)d %(differing)d %(not_compared)d %(why)s" % d["probes"][0]["verify"] == "2 0 0 "' gbpf probe ls
	eventually counts 45 # each block of each launch once, compared or not
}

@test "--verify says what differs, and what cannot be compared" {
	begin
	gbpf probe attach --budget none "$BUILD/keep_stack.bpf.o" --verify --kernel place >"$BATS_TEST_TMPDIR/result" &
	verifier=$!
	attached_to place
	start
	tell "compare place 5"
	wait "$verifier"
	cat "$BATS_TEST_TMPDIR/result"
	[[ "$(cat "$BATS_TEST_TMPDIR/result")" == *"0 equal, 1 differing, 0 not compared: place: its form writes something else at byte 0 of the allocation of 768 bytes at 0x"* ]]
	eventually counts 5
	gbpf probe detach 1
	for kernel in chance:"two runs of the kernel itself have different results" \
		chain:"it uses an address that may not come from an argument" \
		add:"it may write a variable, total"; do
		gbpf probe attach --budget none "$BUILD/count_blocks.bpf.o" --verify --kernel "${kernel%%:*}" >"$BATS_TEST_TMPDIR/result" &
		verifier=$!
		attached_to "${kernel%%:*}"
		if [ "${kernel%%:*}" = add ]; then
			tell load "variables 2"
		else
			tell "compare ${kernel%%:*} 2"
		fi
		wait "$verifier"
		cat "$BATS_TEST_TMPDIR/result"
		[[ "$(cat "$BATS_TEST_TMPDIR/result")" == *"0 equal, 0 differing, 1 not compared: "*"${kernel#*:}"* ]]
		gbpf probe detach --all
	done
}

@test "without --verify nothing is compared" {
	begin
	gbpf probe attach --budget none "$BUILD/count_blocks.bpf.o"
	start
	tell "compare same 3"
	eventually shows '[p["verify"] for p in d["probes"]] == [None]' gbpf probe ls
}
