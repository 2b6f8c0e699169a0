#!/usr/bin/env bats
# Programs that launch right at their start, on the soft GPU: tools that were attached before see all of their launches.

load helpers
load talk

PROGRAMS=8

# at_once N: starts a program that finds its lines right away, and obeys them.
at_once() {
	local io="$GBPF_RUNTIME_DIR/io.$1"
	mkfifo "$io.in" "$io.out"
	exec {in[$1]}<>"$io.in" {out[$1]}<>"$io.out" # opening them waits for nothing
	printf '%s\n' load "launch 3 10" "launch 1 1" >&"${in[$1]}"
	gbpf run --device soft --name early -- "$BUILD/probed" <"$io.in" >"$io.out" 3>&- &
	early[$1]=$!
	pids+=("$!")
}

# launched N: the program has done all.
launched() {
	local word answer
	read -r -t "$EVENTUALLY_SECONDS" -u "${out[$1]}" word answer
	[ "$word" = pid ]
	for word in load launch launch; do
		read -r -t "$EVENTUALLY_SECONDS" -u "${out[$1]}" answer
		[ "$answer" = ok ]
	done
}

# ends N: the program ends.
ends() {
	echo exit >&"${in[$1]}"
	wait "${early[$1]}"
	exec {in[$1]}>&- {out[$1]}<&-
	rm "$GBPF_RUNTIME_DIR/io.$1".*
}

# Each program has counted all of its blocks.
counted() {
	gbpf map dump blocks --probe "$id" --json | python3 -c '
import json, sys
counts = [e["value"] for e in json.load(sys.stdin)["entries"] if e["key"] == 0]
print(*counts)
sys.exit(counts != [31] * int(sys.argv[1]))' "$PROGRAMS"
}

# Others are sent before the one that counts, so that it comes late.
@test "tools that were attached before see the first launches of programs" {
	local i round in=() out=() early=()
	begin
	for ((i = 0; i < 15; i++)); do
		gbpf --quiet probe attach --budget none "$BUILD/count_warps.bpf.o" --kernel "other$i*"
	done
	id=$(gbpf probe attach --budget none "$BUILD/count_blocks.bpf.o" --kernel 'sca*' --json |
		python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
	for ((round = 0; round < ${GBPF_ROUNDS:-3}; round++)); do
		for ((i = 0; i < PROGRAMS; i++)); do
			at_once "$i"
		done
		for ((i = 0; i < PROGRAMS; i++)); do
			launched "$i"
		done
		eventually counted
		for ((i = 0; i < PROGRAMS; i++)); do
			ends "$i"
		done
	done
}
