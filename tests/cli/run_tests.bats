#!/usr/bin/env bats
# tools/run-tests itself, in a folder that has only it and files of bats: a test that fails runs once more, alone.

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	mkdir -p tools tests/cli
	cp "$REPO/tools/run-tests" tools/
}

# file NAME: writes a file of tests. Standard input has a line for each, NAME: BODY, since bats would take @test for one of this file's.
file() {
	local name body
	{
		echo '#!/usr/bin/env bats'
		while IFS=: read -r name body; do
			printf '@test "%s" {\n%s\n}\n' "$name" "$body"
		done
	} >"tests/cli/$1.bats"
}

run_tests() {
	# The inner bats must not take this one's folders and descriptors for its own.
	run env -i PATH="$PATH" HOME="$HOME" TMPDIR="$BATS_TEST_TMPDIR" tools/run-tests --only cli 3>&-
	echo "$output"
}

@test "a test that passes in its repetition counts as passed and is listed as unstable" {
	file once <<-'END'
		[it] fails once (and * passes then): [ -e fell ] || { echo "first try" >&2; touch fell; false; }
		a neighbour: echo x >>neighbour
	END
	run_tests
	[ "$status" -eq 0 ]
	[ "${lines[-1]}" = "2 passed, 0 failed, 0 skipped" ]
	[[ $output == *"unstable: tests/cli/once.bats: [it] fails once (and * passes then) (build/unstable.log has both outputs)"* ]]
	grep -q 'first try' build/unstable.log
	[ "$(wc -l <neighbour)" -eq 1 ] # only the test that failed was repeated
}

@test "a test that fails twice fails the run" {
	file always <<-'END'
		fails: echo x >>tries; false
	END
	run_tests
	[ "$status" -eq 1 ]
	[ "${lines[-1]}" = "0 passed, 1 failed, 0 skipped" ]
	[[ $output == *"failed: tests/cli/always.bats: fails"* ]]
	[ "$(wc -l <tries)" -eq 2 ]
}

@test "a test in whose output a sanitizer names a fault is not repeated" {
	file fault <<-'END'
		finds a fault: echo x >>tries; echo "==7==ERROR: AddressSanitizer: heap-use-after-free" >&2; false
	END
	run_tests
	[ "$status" -eq 1 ]
	[ "$(wc -l <tries)" -eq 1 ]
}

# What cmocka leaves behind when an assertion fails is reported as a leak, and would hide that the test is unstable.
@test "a leak counts as a fault unless a test of cmocka has failed before" {
	file leaks <<-'END'
		leaks: echo x >>tries; echo "==7==ERROR: LeakSanitizer: detected memory leaks" >&2; false
		fails once: [ -e fell ] || { touch fell; echo "[  FAILED  ] 1 test(s), ERROR: LeakSanitizer" >&2; false; }
	END
	run_tests
	[ "${lines[-1]}" = "1 passed, 1 failed, 0 skipped" ]
	[[ $output == *"failed: tests/cli/leaks.bats: leaks"* ]]
	[ "$(wc -l <tries)" -eq 1 ]
}

@test "a file whose tests did not run is repeated whole" {
	echo '[ -e fell ] || { touch fell; exit 1; }' >broken.bash
	file exits <<-'END'
		passes: true
	END
	sed -i "1a load $PWD/broken.bash" tests/cli/exits.bats
	run_tests
	[ "$status" -eq 0 ]
	[[ $output == *"unstable: tests/cli/exits.bats"* ]]
}

@test "more than three unstable tests fail the run" {
	for i in 1 2 3 4; do
		echo "test $i: [ -e fell$i ] || { touch fell$i; false; }"
	done | file many
	run_tests
	[ "$status" -eq 1 ]
	[ "${lines[-1]}" = "4 passed, 1 failed, 0 skipped" ]
	[[ $output == *"failed: 4 unstable tests"* ]]
}

@test "files that took longest in the last run begin first" {
	for name in a b c; do
		printf 'runs: echo %s >>order\n' "$name" | file "$name"
	done
	mkdir build
	# Each needs all processors.
	printf '%s\n' '3 3000 tests/cli/b.bats' '2 2000 tests/cli/c.bats' '1 1000 tests/cli/a.bats' >build/durations
	run_tests
	[ "$status" -eq 0 ]
	[ "$(tr '\n' ' ' <order)" = "b c a " ]
}

# changed: the rooms that the step of the sanitizers watches.
changed() {
	run python3 -c 'import importlib.machinery, importlib.util
loader = importlib.machinery.SourceFileLoader("run_tests", "tools/run-tests")
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_tests", loader))
loader.exec_module(module)
rooms = module.changed_rooms()
print("all" if rooms is None else " ".join(sorted(rooms)))'
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "sanitizers watch the rooms that differ from the last full run, and those that use changed sources" {
	printf '%s\n' 'base:' 'proto: | proto_' 'bpf/run: | ebpf_' 'bpf/run/map: bpf/run' 'sched: bpf/run proto' 'shim: sched # uses' >tools/rooms.txt
	mkdir -p src/sched src/bpf/run/map src/base tests/unit/bpf_run bench/results
	touch src/sched/a.c src/bpf/run/map/a.c src/base/a.c tests/unit/bpf_run/test_a.c README.md
	git init -q .
	git add .
	git -c user.name=t -c user.email=t@localhost commit -q -m first
	printf '{"figures": [{"command": "./bootstrap test --all", "value": "3 passed, 0 failed", "commit": "%s"}]}\n' "$(git rev-parse --short HEAD)" >bench/results/tests.json
	changed
	[ -z "$output" ]
	echo x >>README.md
	echo x >>src/sched/a.c
	changed
	[ "$output" = "sched shim" ]
	git checkout -q src
	echo x >tests/unit/bpf_run/test_new.c
	changed
	[ "$output" = "bpf/run" ]
	rm tests/unit/bpf_run/test_new.c
	echo x >src/bpf/run/map/b.c
	changed
	[ "$output" = "bpf/run bpf/run/map sched shim" ]
	git add src
	git -c user.name=t -c user.email=t@localhost commit -q -m second
	sed -i "s/]}/, {\"command\": \"CI=1 .ci\/run\", \"value\": \"3 passed, 1 failed\", \"commit\": \"$(git rev-parse --short HEAD)\"}]}/" bench/results/tests.json
	changed # a gate that failed does not count
	[ "$output" = "bpf/run bpf/run/map sched shim" ]
	sed -i 's/1 failed/0 failed/' bench/results/tests.json
	changed
	[ -z "$output" ]
	sed -i 's/"commit": "[^"]*"/"commit": "0123456789"/g' bench/results/tests.json
	changed
	[ "$output" = all ]
}

# source_of_tinygrad: makes a source tree that is like tinygrad's, except that it executes nothing.
source_of_tinygrad() {
	mkdir -p source/tinygrad source/test
	cat >source/tinygrad/__init__.py <<-'END'
		import os, types
		class PTXRenderer: pass
		class Devices(dict): DEFAULT = os.environ['DEV'].split(':')[0] if 'DEV' in os.environ else ''
		Device = Devices(CUDA=types.SimpleNamespace(renderer=PTXRenderer()))
	END
	touch source/test/__init__.py
	cat >source/test/test_tiny.py <<-'END'
		import unittest
		class TestTiny(unittest.TestCase):
		 def test_right(self): pass
		 def test_wrong(self): self.assertEqual(1, 2)
		 def test_known(self): self.assertEqual(1, 2)
		 @unittest.skip('not on this device')
		 def test_other(self): pass
		 @unittest.expectedFailure
		 def test_mended(self): pass
		 @unittest.expectedFailure
		 def test_unmended(self): self.assertEqual(1, 2)
	END
	echo 'raise ModuleNotFoundError(name="torch")' >source/test/test_needs.py
	echo 'import os; os._exit(3)' >source/test/test_ends.py
	cat >source/test/test_hangs.py <<-END
		import subprocess, unittest
		class TestHangs(unittest.TestCase):
		 def test_hangs(self):
		  p = subprocess.Popen(['sleep', '1000'])
		  open('$PWD/pid', 'w').write(str(p.pid))
		  p.wait()
	END
	export PYTHONPATH=$PWD/source
}

@test "tinygrad's tests are skipped with a hint where there are none" {
	mkdir -p tests/tinygrad nothing/tinygrad
	cp "$REPO"/tests/tinygrad/{run,modules.txt} tests/tinygrad/
	touch nothing/tinygrad/__init__.py
	run env -i PATH="$PATH" HOME="$HOME" TMPDIR="$BATS_TEST_TMPDIR" PYTHONPATH="$PWD/nothing" tools/run-tests --only tinygrad 3>&-
	echo "$output"
	[ "${lines[-1]}" = "0 passed, 0 failed, 1 skipped" ]
	[[ "$output" == *"skipped tinygrad: $PWD/nothing has no tests of tinygrad; put a source tree of tinygrad into PYTHONPATH"* ]]
}

# ended PID: the process has ended, whether its parent has taken note or not.
ended() { ! grep -q '^State:[[:space:]]*[^Z]' "/proc/$1/status" 2>/dev/null; }

# run_tinygrad OPTIONS LINE...: runs them with these lines as modules.txt.
run_tinygrad() {
	printf '%s\n' "${@:2}" >modules.txt
	# shellcheck disable=SC2086 # no option, or several
	run env -u LD_PRELOAD "$REPO/tests/tinygrad/run" --list modules.txt $1 "$GBPF_PREFIX"
	echo "$output"
}

@test "each of tinygrad's tests counts, but for those that tinygrad or the list leaves out" {
	source_of_tinygrad
	run_tinygrad "" '# a comment' 'test.test_tiny except TestTiny.test_known' test.test_needs test.test_ends
	[ "$status" -eq 1 ]
	[[ "$output" == *"ok 2 test.test_tiny TestTiny.test_right"$'\n'"ok 3 test.test_tiny TestTiny.test_unmended"* ]]
	[[ "$output" == *"not ok 4 test.test_tiny TestTiny.test_wrong"* ]]
	[[ "$output" == *"# AssertionError: 1 != 2"* ]]
	[[ "$output" == *$'\n''ok 5 test.test_needs # skip it needs torch; install the package python3-torch'$'\n''not ok 6 test.test_ends'$'\n''# exit status 3'* ]]
	[ "${lines[-1]}" = "1..6" ]
	[[ "$output" != *test_known* && "$output" != *test_other* ]]
}

@test "a test of tinygrad's that passes although it is expected to fail is a failure" {
	source_of_tinygrad
	run_tinygrad "" 'test.test_tiny except TestTiny.test_known TestTiny.test_wrong'
	[ "$status" -eq 1 ]
	[ "${lines[0]}" = "not ok 1 test.test_tiny TestTiny.test_mended" ]
	[ "${lines[1]}" = "# it passes, and is expected to fail" ]
	[ "${lines[-1]}" = "1..3" ]
}

@test "a name in the list that tinygrad's tests do not have is a failure" {
	source_of_tinygrad
	run_tinygrad "" 'test.test_tiny except TestTiny.test_mended TestTiny.test_konwn TestTiny.test_known TestTiny.test_wrong' test.test_tinny
	[ "$status" -eq 1 ]
	[ "${lines[0]}" = "not ok 1 test.test_tiny TestTiny.test_konwn" ]
	[ "${lines[1]}" = "# the list leaves it out, and the module has no such test" ]
	[[ "$output" == *"not ok 4 test.test_tinny"$'\n'"# exit status 1"* ]]
	[ "${lines[-1]}" = "1..4" ]
	run_tinygrad "" 'test.test_tiny except'
	[ "$status" -eq 1 ]
	[ "$output" = "modules.txt: invalid line: test.test_tiny except" ]
}

@test "a module of tinygrad's tests that runs for too long is ended with what it has started" {
	source_of_tinygrad
	run_tinygrad "--timeout 5" test.test_hangs
	[ "$status" -eq 1 ]
	[ "${lines[0]}" = "not ok 1 test.test_hangs" ]
	[ "${lines[1]}" = "# it ran for more than 5 s" ]
	# On a busy machine it may not have come to its child.
	[ ! -e pid ] || eventually ended "$(<pid)"
}
