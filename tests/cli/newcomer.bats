# The first things that a new user tries.
load helper

@test "check takes the name of an installed policy, too" {
	run "$GBPF" policy check fair
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"fair: submit"* ]]
}

@test "a file whose name is not UTF-8 has its place in the document" {
	cp "$GBPF_PREFIX/lib/gbpf/policies/fifo.bpf.o" "$(printf 'n\377.bpf.o')"
	run "$GBPF" --json policy check n*.bpf.o
	echo "$output"
	[ "$status" -eq 0 ]
	json 'd["files"][0]["file"] == "n?.bpf.o" and d["files"][0]["ok"]'
}

@test "source, folders and too large files are refused as such" {
	touch a.bpf.c
	run "$GBPF" policy check a.bpf.c
	[ "$status" -eq 1 ]
	[[ "$output" == *"gbpf policy build a.bpf.c"* ]]
	run "$GBPF" policy check /dev/zero
	[ "$status" -eq 1 ]
	[[ "$output" == *"16 MiB"* ]]
	run "$GBPF" policy check --section nothing fair
	[ "$status" -eq 2 ]
	[[ "$output" == *"Hooks: admit"* ]]
}

@test "a policy's name without .bpf.o finds the file in this folder" {
	"$GBPF" policy new mine
	cd mine
	"$GBPF" policy build
	run "$GBPF" policy test mine
	echo "$output"
	[ "$status" -eq 5 ]
	[[ "$output" == *"Did you mean the file 'mine.bpf.o'?"* ]]
	printf 'tenant a\nsubmit a\nexpect ADMIT\n' >wrong.scenario
	run "$GBPF" policy test mine.bpf.o wrong.scenario
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"It has GO, HOLD, DEFER, SPLIT"* ]]
}

@test "a map's name that is not UTF-8 is no lack of memory" {
	run "$GBPF" map dump "$(printf 'a\377')"
	echo "$output"
	[ "$status" -eq 5 ]
	[[ "$output" == *"no map"* ]]
}

@test "a file that may not be read is unusable, not refused" {
	[ "$(id -u)" -ne 0 ] || command -v setpriv >/dev/null || skip "needs a user without rights"
	cp "$GBPF_PREFIX/lib/gbpf/policies/fifo.bpf.o" a.bpf.o
	chmod 000 a.bpf.o
	chmod 755 .
	local as=()
	[ "$(id -u)" -ne 0 ] || as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
	run "${as[@]}" "$GBPF" policy check ./a.bpf.o
	echo "$output"
	[ "$status" -eq 1 ]
}

@test "maps say what they take" {
	cat >maps.bpf.c <<-'EOF'
		#include <gbpf/gbpf.bpf.h>
		GBPF_LICENSE("Apache-2.0");
		struct prefix { u32 bits; u8 ip[4]; };
		struct {
			__uint(type, GBPF_MAP_LPM_TRIE);
			__uint(max_entries, 16);
			__type(key, struct prefix);
			__type(value, s32);
		} nets SEC(".maps");
		struct {
			__uint(type, GBPF_MAP_QUEUE);
			__uint(max_entries, 4);
			__type(value, u64);
		} next SEC(".maps");
		SEC("gbpf/tick") int GBPF_PROG(maps_tick, tick)
		{
			return 0;
		}
	EOF
	sed 's/max_entries, 4/max_entries, 1000/; s/MAP_QUEUE/MAP_RINGBUF/' maps.bpf.c >ring.bpf.c
	run "$GBPF" policy build ring.bpf.c
	[ "$status" -eq 1 ]
	[[ "$output" == *"a power of two from 4096"* ]]
	"$GBPF" policy build maps.bpf.c
	"$GBPF" run --device soft true
	"$GBPF" policy swap maps.bpf.o
	run "$GBPF" map set nets '{bits=64, ip=[10,0,0,0]}' 5
	[ "$status" -eq 2 ]
	[[ "$output" == *"longer than 32"* ]]
	run "$GBPF" map set nets '{bits=8, ip=[10,0,0,0]}' 3000000000
	[ "$status" -eq 2 ]
	[[ "$output" == *"does not fit"* ]]
	"$GBPF" map set next 7
	run "$GBPF" map delete next 0
	[ "$status" -eq 2 ]
	[[ "$output" == *"no keys"* ]]
	run "$GBPF" map delete next
	[ "$status" -eq 0 ]
	[[ "$output" == *"= 7"* ]]
}

@test "loops with nothing in them end" {
	printf 'repeat 1000000000 {\nrepeat 1000000000 {\n}\n}\n' >loops.scenario
	run timeout "$EVENTUALLY_SECONDS" "$GBPF" policy test fair loops.scenario
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"more than 10000000 steps"* ]]
}
