#!/usr/bin/env bats
# tools/check-tests on a tree with one breach: it names the file, the line and the rule.

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	mkdir -p src/lib tests/cli tests/system
}

# finds RULE FILE:LINE
finds() {
	run "$REPO/tools/check-tests" .
	echo "$output"
	[ "$status" -eq 1 ]
	[ "${#lines[@]}" -eq 1 ]
	[[ "${lines[0]}" == "$2: $1: "* ]]
}

finds_nothing() {
	run "$REPO/tools/check-tests" .
	echo "$output"
	[ "$status" -eq 0 ]
	[ -z "$output" ]
}

@test "a timeout that tests cannot lengthen" {
	printf '#define START_TIMEOUT_MS 15000\n\treturn poll(&p, 1,\n\t\t    START_TIMEOUT_MS);\n' >src/lib/start.c
	finds limit src/lib/start.c:3
	sed -i 's/ START_TIMEOUT_MS)/ (int)clock_patience(START_TIMEOUT_MS))/' src/lib/start.c
	finds_nothing
}

@test "a timeout behind another one that is multiplied" {
	printf '\ta = clock_patience(ASK_TIMEOUT_NS);\n\tb = ANSWER_TIMEOUT_NS;\n' >src/lib/ask.c
	finds limit src/lib/ask.c:2
}

@test "a sleep of a fixed time" {
	printf 'a_test() {\n\tsleep 0.5\n}\n' >tests/cli/a.bats
	finds sleep tests/cli/a.bats:2
	printf 'a_test() {\n\tsleep 0.5 # polls the state\n\texec sleep 1000\n}\n' >tests/cli/a.bats
	finds_nothing
}

@test "a sleep in Python" {
	printf 'import time\ntime.sleep(1)\n' >tests/system/a.py
	finds sleep tests/system/a.py:2
}

@test "a test that tries again" {
	printf '\tfor try in 1 2 3; do\n' >tests/cli/a.bats
	finds retry tests/cli/a.bats:1
	printf '\tlocal try said\n' >tests/cli/a.bats
	finds retry tests/cli/a.bats:1
	printf '\tfor i in 1 2 3; do\n' >tests/cli/a.bats
	finds_nothing
}

@test "a test that is skipped on a busy machine" {
	printf '\t[ "$quiet" ] || skip "the machine is too busy"\n' >tests/cli/a.bats
	finds skip tests/cli/a.bats:1
	printf '\t[ "$(id -u)" -eq 0 ] || skip "needs root"\n' >tests/cli/a.bats
	finds_nothing
}
