# What somebody meets who tries things out.
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

@test "source, folders and what is too large are told as such" {
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
