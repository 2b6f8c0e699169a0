# bpf_printk: in the output of gbpf policy test, and in gbpf events.
load helper

setup() {
	cli_setup
	test_policies .
}

@test "policy test prints lines with the line of the scenario, the time and the hook" {
	printf 'tenant a\nwait 2ms\nsubmit a kind=copy\ninit\nrepeat 2 {\n\ttick\n}\n' >s.scenario
	for jit in "" --jit; do
		run --separate-stderr "$GBPF" policy test $jit printing.bpf.o s.scenario
		echo "$output"
		[ "$status" -eq 0 ]
		[ "${lines[0]}" = "  3  1.002000 s  a        submit: submit: kind 1 of tenant 0, -5" ]
		[ "${lines[1]}" = "  4  1.002000 s  gbpfd    init: begins" ]
		[ "${lines[2]}" = "  6  1.002000 s  gbpfd    tick: tick 0" ]
		[ "${lines[3]}" = "  6  1.002000 s  gbpfd    tick: tick 1" ]
		[[ "${lines[4]}" == "✓ "* ]]
	done
	run --separate-stderr "$GBPF" policy test -v printing.bpf.o s.scenario
	[[ "${lines[0]}" == *"submit kind=1"* ]]
	[ "${lines[1]}" = "     printed: submit: kind 1 of tenant 0, -5" ]
	run "$GBPF" --json policy test printing.bpf.o s.scenario
	json '[p["text"] for p in d["scenarios"][0]["prints"]][1:] == ["begins", "tick 0", "tick 1"] and d["scenarios"][0]["prints"][0]["where"] == "a"'
}

@test "bpf_printk of libbpf prints formats on the stack" {
	# as in bpf_helpers.h
	cat >stack.bpf.c <<'END'
#include <gbpf/gbpf.bpf.h>
#ifdef BPF_NO_GLOBAL_DATA
#define MODIFIER
#else
#define MODIFIER static const
#endif
#undef bpf_printk
#define bpf_printk(fmt, args...)                                    \
	({                                                          \
		MODIFIER char ____fmt[] = fmt;                      \
		bpf_trace_printk(____fmt, sizeof(____fmt), ##args); \
	})

GBPF_LICENSE("GPL");

SEC("gbpf/submit")
int GBPF_PROG(stack_submit, submit)
{
#ifdef CHANGED
	char changed[] = "kind ?\n";

	changed[5] = (char)('a' + ctx->kind);
	bpf_trace_printk(changed, sizeof(changed));
#endif
	bpf_printk("submit: kind %u of tenant %u, %lld", ctx->kind, ctx->tenant, -5ll);
	bpf_printk("kind %u", ctx->kind);
	return GBPF_GO;
}
END
	printf 'tenant a\nsubmit a kind=copy\n' >stack.scenario
	for define in "" "-D BPF_NO_GLOBAL_DATA"; do
		"$GBPF" -q policy build $define stack.bpf.c
		for jit in "" --jit; do
			run --separate-stderr "$GBPF" policy test $jit stack.bpf.o stack.scenario
			echo "$output"
			[ "$status" -eq 0 ]
			[ "${lines[0]}" = "  2  1.000000 s  a        submit: submit: kind 1 of tenant 0, -5" ]
			[ "${lines[1]}" = "  2  1.000000 s  a        submit: kind 1" ]
		done
	done
	run "$GBPF" policy build -D BPF_NO_GLOBAL_DATA -D CHANGED stack.bpf.c
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"character 6 of the format on the stack "*" is not a known ASCII character"*"static const"* ]]
}

@test "policy test stores 1000 lines and counts the others" {
	printf 'tenant a\nrepeat 1500 {\n\tsubmit a\n}\n' >s.scenario
	run "$GBPF" policy test printing.bpf.o s.scenario
	[ "$status" -eq 0 ]
	[ "$(grep -c 'submit: kind' <<<"$output")" -eq 1000 ]
	[[ "$output" == *"500 printed lines left out"* ]]
}

# n_prints PATTERN: number of print events with it.
n_prints() { "$GBPF" events --since 1h | grep ' print ' | grep -c -- "$1" || true; }

# printed PATTERN: there is such a print event.
printed() { [ "$(n_prints "$1")" -gt 0 ]; }

@test "events has the lines of gbpfd's hooks and of programs, within the budget" {
	"$GBPF" run --device soft --name job "$GBPF_PREFIX/lib/gbpf/samples/batch" >batch.out 2>&1 &
	job=$!
	eventually grep -q ready batch.out
	"$GBPF" -q policy swap printing.bpf.o
	eventually printed "init: begins"
	eventually printed "tick: tick"
	eventually printed "submit: kind 0 of tenant 0, -5"
	eventually printed "lines left out"
	# In each second at most 16 lines of a process; a second of the clock more at either end.
	begin=$(date +%s)
	n=$(n_prints "submit: kind")
	eventually eval '[ "$(($(date +%s) - begin))" -ge 3 ]'
	m=$(n_prints "submit: kind")
	passed=$(($(date +%s) - begin))
	[ "$((m - n))" -le "$((16 * (passed + 2)))" ]
	eventually shows 'd["counters"]["helper_errors"] == 0 and d["counters"]["notes"][0] > 0' "$GBPF" policy show
	kill "$job"
	wait "$job" || true
	grep -q "wrong 0" batch.out
}

@test "lines that wait when a version ends are passed on, and written to the log when gbpfd exits" {
	"$GBPF" run --device soft --name job "$GBPF_PREFIX/lib/gbpf/samples/batch" >batch.out 2>&1 &
	job=$!
	eventually grep -q ready batch.out
	"$GBPF" -q policy swap printing.bpf.o
	eventually printed "lines left out" # more lines wait than may be passed on in a second
	"$GBPF" -q policy swap fifo
	eventually printed "exit: ends for reason" # once the program runs the other policy
	"$GBPF" -q policy swap printing.bpf.o
	eventually printed "tick: tick"
	pid=$("$GBPF" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["daemon"]["pid"])')
	"$GBPF" -q shutdown
	eventually has_exited "$pid"
	kill "$job"
	wait "$job" || true
	cat "$GBPF_RUNTIME_DIR/gbpfd.log"
	grep -q "print: 'printing' version [0-9]*, exit: ends for reason" "$GBPF_RUNTIME_DIR/gbpfd.log"
}
