# gbpf probe rewrite: probed forms from files, without gbpfd.
load helper

setup() {
	cli_setup
	test_policies .
	cat >kernels.ptx <<-'PTX'
		.version 6.0
		.target sm_70
		.address_size 64
		.global .align 4 .u32 total;
		.func helper()
		{
			ret;
		}
		.visible .entry first(.param .u64 first_0)
		{
			.reg .pred %p<2>;
			.reg .b32 %r<4>;
			ld.global.u32 %r1, [total];
			@%p1 ret;
			call helper;
			ret;
		}
		.visible .entry second()
		{
			.reg .b64 %d<2>;
			mov.u64 %d1, helper;
			ret;
		}
	PTX
}

@test "the form of a kernel has its programs, its variables by address and nothing else" {
	run --separate-stderr "$GBPF" probe rewrite kernels.ptx blocks.bpf.o --kernel first
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == ".version 6.2"* ]]
	[[ "$output" == *'.const .align 8 .b64 gbpf$table[4];'* ]]
	[[ "$output" == *".entry first("* ]]
	[[ "$output" == *"red.relaxed.gpu.global.add.u64"* ]]
	[[ "$output" != *"_f0"* ]]
	[[ "$output" != *"second"* ]]
	[ -z "$stderr" ]
}

@test "--explain prints programs, sites and variables" {
	run --separate-stderr "$GBPF" probe rewrite kernels.ptx blocks.bpf.o -k first --explain
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${lines[0]}" = "kernel first" ]
	[[ "${lines[1]}" == "program "*": 1 site, cost "* ]]
	[[ "$output" == *"variable total: by address, entry 1 of the table"* ]]
	[[ "$output" == *".version is raised to 6.2"* ]]
	run "$GBPF" probe rewrite kernels.ptx blocks.bpf.o -k first --json
	json 'd["schema"] == "gbpf.probe.rewrite/1" and d["kernel"] == "first" and d["variables"] == ["total"]'
	json 'd["programs"][0]["sites"] == 1 and d["ptx"].startswith(".version 6.2")'
}

@test "programs before and behind launches are no part of the form" {
	sed 's|gdev/block_enter|gdev/end|; s/gdev_block_enter/gdev_end/' "$REPO/tests/data/cli/blocks.bpf.c" >ends.bpf.c
	"$GBPF" policy build ends.bpf.c
	run --separate-stderr "$GBPF" probe rewrite kernels.ptx ends.bpf.o -k first
	[ "$status" -eq 5 ]
	[[ "$stderr" == *"the programs for first run before and behind its launches"* ]]
	cat >both.bpf.c <<-'C'
		#include <gbpf/gbpf.bpf.h>
		SEC("gdev/enter") int GBPF_PROG(in, gdev_enter) { return 0; }
		SEC("gdev/begin") int GBPF_PROG(front, gdev_begin) { return 0; }
		GBPF_LICENSE("GPL");
	C
	"$GBPF" policy build both.bpf.c
	run --separate-stderr "$GBPF" probe rewrite kernels.ptx both.bpf.o -k first --explain
	echo "$output"
	[[ "$output" == *"program in: 1 site, "*"program front: before or behind each launch, cost "* ]]
}

@test "what cannot be probed is refused with line and remedy" {
	run --separate-stderr "$GBPF" probe rewrite kernels.ptx blocks.bpf.o -k second
	[ "$status" -eq 4 ]
	[[ "$stderr" == *"kernels.ptx:21: takes the address of function helper"*"--probes"* ]]
	[ -z "$output" ]
	run --separate-stderr "$GBPF" probe rewrite kernels.ptx blocks.bpf.o
	[ "$status" -eq 1 ]
	[[ "$stderr" == *"the file has 2 kernels. Choose one with --kernel: first, second"* ]]
	run --separate-stderr "$GBPF" probe rewrite kernels.ptx blocks.bpf.o -k third
	[ "$status" -eq 5 ]
	[[ "$stderr" == *"no kernel is named third. Choose one with --kernel: first, second"* ]]
	run --separate-stderr "$GBPF" probe rewrite none.ptx blocks.bpf.o
	[ "$status" -eq 5 ]
	[[ "$stderr" == *"none.ptx: cannot read it: No such file or directory"* ]]
	echo "no PTX" >bad.ptx
	run --separate-stderr "$GBPF" probe rewrite bad.ptx blocks.bpf.o
	[ "$status" -eq 1 ]
	[[ "$stderr" == *"bad.ptx:1:"* ]]
	run --separate-stderr "$GBPF" probe rewrite kernels.ptx good.bpf.o -k first
	[ "$status" -eq 5 ]
	[[ "$stderr" == *"no program of the object is for first"* ]]
}

@test "--probes rewrites calls through pointers and variables of bodies" {
	cat >own.ptx <<-'END'
		.version 7.0
		.target sm_70
		.address_size 64
		.func f() { ret; }
		.visible .entry k() {
		.reg .u64 %d; .global .u32 seen;
		mov.u64 %d, f; st.global.u32 [seen], 1;
		p: .callprototype _ ();
		call %d, (), p;
		ret; }
	END
	run --separate-stderr "$GBPF" probe rewrite own.ptx blocks.bpf.o
	[ "$status" -eq 4 ]
	[[ "$stderr" == *"own.ptx:6: seen is declared inside a body"*"gbpf run --probes"* ]]
	run --separate-stderr "$GBPF" probe rewrite --probes own.ptx blocks.bpf.o
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[[ "$output" == *"_via0 (.param .b64 "*"call f, ();"* ]]
	[[ "$output" != *" seen"* ]]
}

@test "labels name the program and instruction that code belongs to" {
	run --separate-stderr "$GBPF" probe rewrite kernels.ptx blocks.bpf.o --kernel first
	[[ "$output" == *$'\n$program$count:\n'* ]]
	[[ "$output" =~ \$L[0-9]+:$'\n'[^$]*red\.relaxed ]]
}

@test "programs without a site, and what they do not see or know, are stated" {
	cat >odd.ptx <<-'END'
		.version 8.7
		.target sm_100a
		.address_size 64
		.visible .entry k()
		{
		.reg .b32 %r<3>;
		ld.shared.u32 %r1, [%r2];
		tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;
		frobnicate.b32 %r1, %r2;
		ret;
		}
	END
	cat >two.bpf.c <<-'END'
		#include <gbpf/gbpf.bpf.h>
		GBPF_LICENSE("GPL");
		SEC("gdev/access")
		int GBPF_PROG(touch, gdev_access) { return 0; }
		SEC("gdev/barrier")
		int GBPF_PROG(meet, gdev_barrier) { return 0; }
	END
	"$GBPF" policy build two.bpf.c
	run --separate-stderr "$GBPF" probe rewrite odd.ptx two.bpf.o
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[[ "$output" == *"frobnicate.b32 %r1, %r2;"* ]]
	[[ "$stderr" == *"k: program meet has no site in it"* ]]
	[[ "$stderr" != *"program touch"* ]]
	[[ "$stderr" == *"odd.ptx:8: unseen: 2 instructions may access memory"* ]]
	[[ "$stderr" == *"odd.ptx:9: not known: 1 instruction, at which no program runs"* ]]
}

@test "tools that come with gBPF are known by their names" {
	run --separate-stderr "$GBPF" probe rewrite kernels.ptx coalesce --kernel first --explain
	[ "$status" -eq 0 ]
	[[ "$output" == *": 1 site, "* ]]
	run --separate-stderr "$GBPF" probe rewrite kernels.ptx coalescer --kernel first
	[ "$status" -eq 5 ]
	[[ "$stderr" == *"no tool 'coalescer' is installed"*"Did you mean 'coalesce'?"* ]]
}
