# gbpf policy new, build and test: from an empty folder to a tested policy, and what is said when something is wrong.
load helper

policy_new() { "$GBPF" policy new "$@" >/dev/null; }

@test "every template builds, is accepted and passes its test, interpreted and compiled" {
	for t in sched mem observe full; do
		policy_new "my_$t" -t "$t"
		(
			cd "my_$t"
			"$GBPF" policy build
			"$GBPF" policy test "my_$t.bpf.o"
			"$GBPF" policy test --jit "my_$t.bpf.o" "my_$t.scenario"
		)
	done
}

@test "the template of a tool builds, is accepted, and counts in a program" {
	policy_new look -t probe
	[ "$(ls look)" = look.bpf.c ]
	"$GBPF" policy build look
	"$GBPF" policy check look/look.bpf.o
	run "$GBPF" --json policy new other -t probe
	json 'd["files"] == ["other.bpf.c"] and d["template"] == "probe"'
}

@test "templates build with each clang and instruction set" {
	for t in sched mem observe full; do
		policy_new "my_$t" -t "$t"
		for v in v1 v2 v3 v4; do
			"$GBPF" policy build --mcpu "$v" "my_$t"
			"$GBPF" policy test "my_$t/my_$t.bpf.o"
		done
		CLANG=clang-14 "$GBPF" policy build "my_$t"
		"$GBPF" policy test "my_$t/my_$t.bpf.o"
	done
}

# arguments PROGRAM...: what build calls when PATH has only these compilers.
arguments() {
	local f
	mkdir -p only
	rm -f only/*
	for f in "$@"; do
		printf '#!/bin/sh\necho "$0 $*" >&2\nexit 1\n' >"only/$f"
		chmod +x "only/$f"
	done
	run --separate-stderr env PATH="$PWD/only" "$GBPF" policy build mine
	[ "$status" -eq 1 ]
}

@test "build prefers clang 19 and the instruction set v4, and does without" {
	policy_new mine
	arguments clang clang-14 clang-19
	[[ "$stderr" == *"/clang-19 "*"-mcpu=v4 "* ]]
	arguments clang clang-14
	[[ "$stderr" == *"/clang-14 "*"-mcpu=v3 "* ]]
	arguments clang
	[[ "$stderr" == *"/clang "*"-mcpu=v3 "* ]]
	run --separate-stderr env PATH="$PWD/only" "$GBPF" policy build --mcpu v4 mine
	[[ "$stderr" == *"/clang "*"-mcpu=v4 "* ]]
	arguments clang-14
	run --separate-stderr env PATH="$PWD/only" "$GBPF" policy build --mcpu v4 mine
	[[ "$stderr" == *"Install the package clang-19"* ]]
	CLANG=only/clang-14 run --separate-stderr "$GBPF" policy build mine
	[[ "$stderr" == *"only/clang-14 "*"-mcpu=v3 "* ]]
}

@test "every shipped policy passes its scenario" {
	for p in fair fifo lc_first; do
		run "$GBPF" policy test "$p"
		echo "$output"
		[ "$status" -eq 0 ]
		[[ "$output" == "✓ "*"expectation"* ]]
		"$GBPF" policy test --jit "$p"
	done
}

@test "new says what to do next, and what it says works" {
	run --separate-stderr "$GBPF" policy new mine
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	printf '%s\n' "$output" | sed -n 's/^  //p' | grep -v swap >steps
	[ "$(wc -l <steps)" -eq 3 ]
	PATH=$GBPF_PREFIX/bin:$PATH bash -e steps
	"$GBPF" policy new lent/ >/dev/null # as a shell completes a folder's name
	[ -f lent/lent.scenario ]
	run "$GBPF" --json policy new other -t mem
	json 'd["schema"] == "gbpf.policy.new/1" and d["files"] == ["other.bpf.c", "other.scenario"] and d["template"] == "mem"'
}

@test "new changes nothing that is there, and wants a name that C can have" {
	policy_new mine
	echo '// mine' >>mine/mine.bpf.c
	run --separate-stderr "$GBPF" policy new mine
	[ "$status" -eq 1 ]
	[[ "$stderr" == *"exists already"* ]]
	[ "$(tail -1 mine/mine.bpf.c)" = "// mine" ]
	for name in my-policy 9lives "" "a b" abcdefghijklmnopqrstuvwxyzabcdefgh; do
		run --separate-stderr "$GBPF" policy new "$name"
		[ "$status" -eq 2 ]
		[[ "$stderr" == *"is not a name for a policy"* ]]
	done
	run --separate-stderr "$GBPF" policy new x --template scehd
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"Did you mean 'sched'?"* ]]
	run "$GBPF" policy new nosuchfolder/x
	[ "$status" -eq 1 ]
}

@test "build without clang names the package" {
	policy_new mine
	run --separate-stderr env PATH=/nonexistent "$GBPF" policy build mine
	[ "$status" -eq 1 ]
	[[ "$stderr" == *"Install the package clang-19, or set CLANG"* ]]
	run --separate-stderr env CLANG=nosuchclang "$GBPF" policy build mine
	[ "$status" -eq 1 ]
	[[ "$stderr" == *"nosuchclang"* ]]
	CLANG=$(command -v clang-14) "$GBPF" policy build mine
}

@test "build of what does not compile shows the compiler's words" {
	echo 'int x = ;' >bad.bpf.c
	run --separate-stderr "$GBPF" policy build
	[ "$status" -eq 1 ]
	[[ "$stderr" == *"bad.bpf.c:1:9"*"does not compile"* ]]
}

@test "build of what is refused is 4, and shows the refusal" {
	cp "$REPO/tests/data/cli/null_lookup.bpf.c" .
	run --separate-stderr "$GBPF" policy build
	[ "$status" -eq 4 ]
	[[ "$output" == "✗ null_lookup.bpf.o: "*"NULL"* ]]
	run --separate-stderr "$GBPF" policy build --json
	[ "$status" -eq 4 ]
	json 'd["schema"] == "gbpf.policy.build/1" and d["files"][0]["error"]["rule"] == "null"'
	json 'd["files"][0]["error"]["line"] == 17 and d["files"][0]["error"]["hook"] == "submit"'
}

@test "build takes files and folders, and an output for one" {
	policy_new one
	policy_new two
	"$GBPF" policy build one two
	[ -f one/one.bpf.o ]
	[ -f two/two.bpf.o ]
	"$GBPF" policy build -o three.bpf.o one/one.bpf.c
	"$GBPF" policy check three.bpf.o
	# What was built is checked, not the installed policy of that name.
	for word in fair examples/mlfq; do
		mkdir -p examples
		run "$GBPF" policy build -o "$word" "$REPO/tests/data/cli/null_lookup.bpf.c"
		[ "$status" -eq 4 ]
		[[ "$output" == "✗ ./$word: "* ]]
		run "$GBPF" policy build --link -o "$word" "$REPO/tests/data/cli/null_lookup.bpf.c"
		[ "$status" -eq 4 ]
	done
	"$GBPF" policy build -o "$PWD/fair" one/one.bpf.c
	run "$GBPF" policy build -o three.bpf.o one two
	[ "$status" -eq 2 ]
	run --separate-stderr "$GBPF" policy build
	[ "$status" -eq 5 ]
	[[ "$stderr" == *"gbpf policy new NAME"* ]]
	run "$GBPF" policy build nosuch.bpf.c
	[ "$status" -eq 5 ]
	run --separate-stderr "$GBPF" policy build one/one.bpf.o
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"gbpf policy check"* ]]
}

@test "a shipped policy that has parts can be copied, changed and built with the installed files only" {
	local from=$GBPF_PREFIX/lib/gbpf/policies
	# The source alone: the parts are the installed ones.
	cp "$from/auto.bpf.c" mine.bpf.c
	"$GBPF" policy build mine.bpf.c
	"$GBPF" policy test mine.bpf.o "$from/auto.scenario"
	# One part is changed: the others are still found, and the change is in force.
	printf '%s\n' 'tenant web class=latency' 'tenant train class=batch' tick \
		'submit train block_ok=1 est_ns=30us block_ns=10us' 'expect GO level=hold' >mine.scenario
	run "$GBPF" policy test mine.bpf.o mine.scenario
	[ "$status" -ne 0 ]
	mkdir auto
	sed 's/\(preempt_min_kernel_ns = \)20 /\140 /' "$from/auto/tunables.h" >auto/tunables.h
	! cmp -s auto/tunables.h "$from/auto/tunables.h"
	"$GBPF" policy build mine.bpf.c
	"$GBPF" policy test mine.bpf.o mine.scenario
	# A whole copy builds with clang alone, and with another file of the same name in the working directory.
	mkdir whole
	cp -r "$from/auto" "$from/auto.bpf.c" "$from/auto.scenario" "$from/groups.h" whole
	clang-14 -target bpf -mcpu=v3 -g -O2 -Wall -Werror -I "$GBPF_PREFIX/include" -c whole/auto.bpf.c -o whole/auto.bpf.o
	"$GBPF" policy test whole/auto.bpf.o whole/auto.scenario
}

@test "an example can be copied and built with the installed files only, and with clang and the folder of the policies" {
	local policies=$GBPF_PREFIX/lib/gbpf/policies from=$GBPF_PREFIX/lib/gbpf/policies/examples
	for p in gang band band2; do # parts of all policies, of examples, of virtual GPUs
		cp "$from/$p.bpf.c" .
		"$GBPF" policy build "$p.bpf.c"
		"$GBPF" policy test "$p.bpf.o" "$from/$p.scenario"
		clang-14 -target bpf -mcpu=v3 -g -O2 -Wall -Werror -I "$GBPF_PREFIX/include" -I "$policies" -c "$from/$p.bpf.c" \
			-o "$p.bpf.o"
		"$GBPF" policy test "$p.bpf.o" "$from/$p.scenario"
	done
	cp -r "$from/gdev" .
	cp band.bpf.c mine.bpf.c
	sed -i 's/\( wait_ns = \)500000;/\15;/' gdev/vgpus.h
	"$GBPF" policy build mine.bpf.c
	run "$GBPF" policy test mine.bpf.o "$from/band.scenario"
	[[ "$output" == *"got      DEFER hold_ns=5 "* ]] # the change is in force
	mkdir vgpu # so is that of a part that all policies share
	echo '#error mine' > vgpu/shares.h
	run "$GBPF" policy build band2.bpf.c
	[ "$status" -ne 0 ]
	[[ "$output" == *"vgpu/shares.h:1:2: error: mine"* ]]
}

@test "a copied and changed part takes effect, also one that another part includes" {
	local policies=$GBPF_PREFIX/lib/gbpf/policies source parts part n=0
	for source in "$policies"/*.bpf.c "$policies"/examples/*.bpf.c; do
		parts=$(clang-14 -target bpf -I "$GBPF_PREFIX/include" -I "$policies" -MM "$source" | tr ' ' '\n' | grep "^$policies/.*\.h$" || true)
		for part in $parts; do
			part=${part#"$policies/"} part=${part#examples/}
			mkdir -p "copy/$(dirname "$part")"
			cp "$source" copy/mine.bpf.c
			echo '#error mine' >"copy/$part"
			run "$GBPF" policy build copy/mine.bpf.c
			echo "$source: $part: $output"
			[ "$status" -ne 0 ]
			[[ "$output" == *"$part:1:2: error: mine"* ]]
			rm -r copy
			n=$((n + 1))
		done
	done
	[ "$n" -gt 30 ]
}

@test "two objects are one policy for check and test" {
	test_policies .
	printf 'tenant a\nsubmit inflight=4\nexpect GO\nsubmit inflight=5\nexpect HOLD\n' >linked_rules.scenario
	run "$GBPF" policy check linked_rules.bpf.o
	[ "$status" -ne 0 ]
	run "$GBPF" policy check --link linked_rules.bpf.o linked_limits.bpf.o
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == "✓ linked_rules: submit "* ]]
	"$GBPF" policy test linked_rules.bpf.o linked_limits.bpf.o
	"$GBPF" policy test linked_rules.bpf.o linked_limits.bpf.o linked_rules.scenario
	run --separate-stderr "$GBPF" policy check --link linked_rules.bpf.o linked_rules.bpf.o
	[ "$status" -eq 1 ]
}
