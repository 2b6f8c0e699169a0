#!/usr/bin/env bats
# Tools some of whose programs have no site in a kernel, on the soft GPU: an operator is told which. Of the kernels of `probed`,
# `own` has a barrier and `scale` has none.

load helpers
load talk

# listed COMMAND...: `gbpf probe ls` succeeds and its standard error, in $stderr, fits.
listed() { run -0 --separate-stderr gbpf probe ls && "$@"; }

SCALE="[{'kernel': 'scale', 'programs': ['at_barrier']}]"

@test "a program without a site in a kernel is named, and one without any in all kernels is warned of" {
	begin
	attach count_parts
	start
	tell load "launch 2 5"
	tool_has 'p["siteless"]["kernels"] == 1'
	tool_has "(p['kernels'], p['refused'], p['siteless']['list']) == (1, 0, $SCALE)"
	tool_has 'p["siteless"]["programs"] == ["at_barrier"]'
	warns_of_program() {
		[[ "$stderr" == *"warning: tool $id: program at_barrier has no site in any of the 1 kernel that runs the tool so far"* ]] &&
			[[ "$stderr" != *"no site in kernel"* ]]
	}
	eventually listed warns_of_program
	eventually prints "program at_barrier of tool $id has no site in scale" gbpf events
	tell prepared "inside 2"
	tool_has 'p["kernels"] == 2'
	tool_has "(p['siteless']['programs'], p['siteless']['list']) == ([], $SCALE)"
	names_kernel() { [[ "$stderr" == *"tool $id: no site in kernel scale: program at_barrier"* ]] && [[ "$stderr" != *warning* ]]; }
	eventually listed names_kernel
}

@test "probe attach warns of it once a kernel runs the tool" {
	begin
	start
	tell load "keep 1"
	run -0 --separate-stderr gbpf probe attach --wait "$BUILD/count_parts.bpf.o" --to "$pid"
	[[ "$stderr" == *"warning: tool 1: program at_barrier has no site in any of the 1 kernel"* ]]
	gbpf probe detach 1
	run -0 --separate-stderr gbpf probe attach --wait "$BUILD/count_blocks.bpf.o" --to "$pid"
	[ -z "$stderr" ]
	tell stop
}

@test "a tool without any site is refused in a kernel that runs others, in whatever order they came" {
	local barriers blocks
	begin
	attach count_barriers
	barriers=$id
	attach count_blocks
	blocks=$id
	start
	tell load "launch 1 3"
	tool_has 'p["kernels"] == 1'
	id=$barriers tool_has '(p["kernels"], p["refused"]) == (0, 1)'
	id=$barriers tool_has 'p["why"] == "scale: no program of the tool has a site in it"'
	gbpf probe detach "$barriers"
	attach count_barriers
	tell "launch 1 3"
	tool_has '(p["kernels"], p["refused"]) == (0, 1)'
	tell prepared "inside 1"
	tool_has '(p["kernels"], p["refused"]) == (1, 1)'
	id=$blocks tool_has '(p["kernels"], p["refused"]) == (2, 0)'
	gbpf map dump blocks --probe "$blocks" --json | grep -q '"value": *7' # 3 + 3 + 1
}

@test "a pattern that matches no kernel is named with the nearest one" {
	begin
	start
	tell load "launch 1 3"
	lists_scale() { gbpf probe coverage --json | grep -q '"name": *"scale"'; }
	eventually lists_scale
	run -0 --separate-stderr gbpf probe attach --budget none "$BUILD/count_blocks.bpf.o" --kernel scal --to "$pid"
	[[ "$stderr" == "warning: tool 1: 'scal' matches none of the 1 kernel that \`gbpf probe coverage\` lists; did you mean 'scale'?" ]]
	run -8 --separate-stderr gbpf --timeout 10 probe attach --wait coalesce --kernel nosuch --to "$pid"
	[[ "$stderr" == *"warning: tool 2: 'nosuch' matches none"*"no kernel has run tool 2 within 10 s; it stays attached"*"gbpf probe detach 2"* ]]
	gbpf probe detach 2
	cd "$BATS_TEST_TMPDIR"
	cat >loads.bpf.c <<-'C'
		#include <gbpf/gbpf.bpf.h>

		GBPF_LICENSE("GPL");

		SEC("gdev/access/load/global")
		int GBPF_PROG(loads, gdev_access)
		{
			return 0;
		}
	C
	gbpf --quiet policy build loads.bpf.c
	run -0 --separate-stderr gbpf probe attach --budget none loads.bpf.o
	[[ "$stderr" == *"'load' matches none of"*"behind the kernel: SEC(\"gdev/access/*/load.global\")"* ]]
	sed -i 's,access/load/global,access/s*/load.global,' loads.bpf.c
	gbpf --quiet policy build loads.bpf.c
	tell "keep 1"
	run -0 --separate-stderr gbpf probe attach --wait loads.bpf.o
	[ -z "$stderr" ]
	tell stop
}
