#!/usr/bin/env bats
# Launches that name memory which has left the device: it comes back, or is used in place, as a policy or the built-in
# rule has it. Unless a test says otherwise, the buffers are of 48 MiB, and the limit is 64 MiB.

load helpers
load vgpu_helpers

FETCHING=${GBPF_BUILD:-build}/tests/system/fetching
OBJECTS=${GBPF_BUILD:-build}/tests/system
MIB=$((1 << 20))

# order TEXT [POLICY [BUFFER LIMIT]]: sets back, out and in_place to what the program's launches have moved.
order() {
	local pid
	start_soft
	start_daemon
	[ -z "$2" ] || gbpf policy load "$2"
	mkfifo "$GBPF_RUNTIME_DIR/in" "$GBPF_RUNTIME_DIR/out"
	timeout 200 gbpf run --device soft --mem "${4:-64}M" --swap 256M -- "$FETCHING" "${3:-48}" "$1" \
		<"$GBPF_RUNTIME_DIR/in" >"$GBPF_RUNTIME_DIR/out" 3>&- &
	pid=$!
	exec {in}>"$GBPF_RUNTIME_DIR/in" {out}<"$GBPF_RUNTIME_DIR/out"
	read -r -t "$EVENTUALLY_SECONDS" -u "$out" line
	[ "$line" = right ]
	read -r out_bytes back in_place < <(eventually gets "[[s['mem_out_bytes'], s['mem_back_bytes'], s['mem_in_place']] for s in \
		[t['stats'] for t in d['tenants']]][0]" gbpf ps)
	exec {in}>&- {out}<&-
	wait "$pid"
	echo "$out_bytes bytes have left, $back come back; $in_place launches in place"
}

@test "with mem_fetch each launch has its memory on the device" {
	export GBPF_PATIENCE=40 # a launch that waits for the mutex or for a pause for too long goes in place
	order a.b.a.b.a.b.a.b mem_fetch
	[ "$in_place" -eq 0 ]
	[ "$back" -eq $((6 * 32 * MIB)) ]
	[ "$out_bytes" -eq $((7 * 32 * MIB)) ]
}

@test "launches that follow each other without a wait have it as well" {
	order abababababab mem_fetch
	[ "$in_place" -lt 10 ]
	[ "$back" -ge $((32 * MIB)) ]
}

# Two chunks of 8 MiB leave for one of 16, which gets its memory in the second pause.
@test "memory comes back for which chunks of another size have left" {
	order a.B.C.a mem_fetch 16 24
	[ "$back" -eq $((16 * MIB)) ]
	[ "$out_bytes" -eq $((32 * MIB)) ]
}

@test "a policy can leave it on the host" {
	order a.b.a.b.a "$OBJECTS/leave_memory.bpf.o"
	[ "$back" -eq 0 ]
	[ "$in_place" -eq 2 ]
}

@test "a policy can hold a launch before" {
	order a.b.a "$OBJECTS/hold_memory.bpf.o"
	[ "$back" -eq $((32 * MIB)) ]
	[ "$in_place" -eq 0 ]
}

@test "without a policy memory that is used again comes back, once" {
	order "a.b.$(printf 'a.%.0s' {1..100})"
	[ "$back" -eq $((32 * MIB)) ]
	[ "$in_place" -lt 100 ]
}

@test "without a policy memory comes back into room that the limit has" {
	start_soft
	start_daemon
	run timeout 200 gbpf run --device soft --mem 64M --swap 256M -- "$FETCHING" 24 abc.a.b.c.a </dev/null
	echo "$output"
	[ "$output" = right ]
}
