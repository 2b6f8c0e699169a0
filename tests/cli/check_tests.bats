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

@test "an end of what must succeed in less than two minutes" {
	mkdir -p tests/unit/lib
	printf 'a_test() {\n\trun timeout 60 gbpf status\n}\n' >tests/cli/a.bats
	finds short-limit tests/cli/a.bats:2
	printf 'a_test() {\n\trun timeout "$EVENTUALLY_SECONDS" gbpf --timeout 2 status\n\ttimeout 120 gbpf status\n}\n' >tests/cli/a.bats
	finds_nothing
	printf 'import subprocess\nsubprocess.run(a, timeout=20)\n' >tests/system/a.py
	finds short-limit tests/system/a.py:2
	rm tests/system/a.py
	printf '/* alarm(2) */\n\talarm(60);\n' >tests/unit/lib/a.c
	finds short-limit tests/unit/lib/a.c:2
	printf '\tassert_int_equal(poll(&p, 1, 10000), 1);\n' >tests/unit/lib/a.c
	finds short-limit tests/unit/lib/a.c:1
	printf '\talarm(200);\n\t(void)poll(&p, 1, EVENTUALLY_MS);\n\t(void)poll(NULL, 0, 20);\n' >tests/unit/lib/a.c
	finds_nothing
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

# single COMMAND: it is a breach as the second line of a test.
single() {
	printf '@test "gbpf ps shows it" {\n\t%s\n}\n' "$1" >tests/cli/a.bats
	finds single-read tests/cli/a.bats:2
}

# excused COMMAND: it is none.
excused() {
	printf '@test "gbpf ps shows it" {\n\t%s\n}\n' "$1" >tests/cli/a.bats
	finds_nothing
}

@test "a single reading of what gbpfd learns later" {
	single 'run gbpf ps'
	single 'run -0 --separate-stderr "$GBPF" --color never ps --why'
	single 'gbpf --json probe ls | python3 -c "import sys"'
	single 'gbpf policy show 2 | grep -q active'
	single '[ "$(gbpf vgpu show train)" = "" ]'
	single 'pid=$("$GBPF_PREFIX/bin/gbpf" --socket "$other" ps)'
}

@test "a single reading in Python" {
	printf "import subprocess\nsubprocess.run(['gbpf', '--json', 'ps'])\n" >tests/system/a.py
	finds single-read tests/system/a.py:2
	printf "def there():\n\treturn subprocess.run(['gbpf', 'ps'])\n\n\neventually(there)\n" >tests/system/a.py
	finds_nothing
	printf "eventually(lambda: subprocess.run(['gbpf', 'ps']))\n" >tests/system/a.py
	finds_nothing
	printf "subprocess.run(['gbpf', 'ps']) # settled: no program runs\n" >tests/system/a.py
	finds_nothing
}

@test "a reading that is repeated, must fail, or cannot change any more" {
	excused 'eventually prints train gbpf ps'
	excused "pid=\$(eventually gets 'd[\"tenants\"][0][\"pid\"]' gbpf ps)"
	excused 'eventually shows True \
		gbpf ps'
	excused 'run -3 --separate-stderr "$GBPF" ps'
	excused 'run ! gbpf ps'
	excused 'run gbpf ps # settled: no program runs'
	excused '[[ "$stderr" == *"gbpf ps"* ]]'
	excused 'gbpf run -- ls'
	single 'run -0 gbpf ps'
	single 'run gbpf ps # settled:'
}

@test "a function that reads is a reading wherever eventually does not repeat it" {
	printf 'lists() { gbpf ps | grep -q "$1"; }\nboth() {\n\tlists a && lists b\n}\n' >tests/cli/helper.bash
	excused 'eventually lists a'
	excused 'eventually both'
	excused 'echo lists both'
	single 'lists a'
	single 'run -0 lists a'
	single 'true && both'
	printf 'setup() {\n\tlists a\n}\n' >tests/cli/a.bats
	finds single-read tests/cli/a.bats:2
	printf 'lists() { true; }\n@test "x" {\n\tlists a\n}\n' >tests/cli/a.bats # another one
	finds_nothing
}
