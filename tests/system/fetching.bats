#!/usr/bin/env bats
# Launches that name memory which has left the device: it comes back, or is used in place, as a policy or the built-in
# rule has it. Unless a test says otherwise, the buffers are of 48 MiB, and the limit is 64 MiB.

load helpers
load vgpu_helpers

FETCHING=${GBPF_BUILD:-build}/tests/system/fetching
OBJECTS=${GBPF_BUILD:-build}/tests/system
KEEP=${GBPF_BUILD:-build}/bench/keep.bpf.o
MIB=$((1 << 20))

# order TEXT [POLICY [BUFFER LIMIT [RESERVE]]]: sets back, out and in_place to what the program's launches have moved.
order() {
	local pid
	start_soft
	start_daemon
	[ -z "$2" ] || gbpf policy load "$2"
	mkfifo "$GBPF_RUNTIME_DIR/in" "$GBPF_RUNTIME_DIR/out"
	timeout 200 gbpf run --device soft --mem "${4:-64}M" --swap 256M ${5:+--reserve "$5M"} -- "$FETCHING" "${3:-48}" "$1" \
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

@test "launches of graphs have their memory on the device" {
	export GBPF_PATIENCE=40
	order '*a.*b.*a.*b.*a.*b.*a.*b' mem_fetch
	[ "$in_place" -eq 0 ]
	[ "$back" -eq $((6 * 32 * MIB)) ]
	[ "$out_bytes" -eq $((7 * 32 * MIB)) ]
}

@test "a graph whose arguments are set has the memory that they name then" {
	export GBPF_PATIENCE=40
	order '=a.=b.=a.=b.=a.=b.=a.=b' mem_fetch
	[ "$in_place" -eq 0 ]
	[ "$back" -eq $((6 * 32 * MIB)) ]
	[ "$out_bytes" -eq $((7 * 32 * MIB)) ]
}

@test "a policy can leave a graph's memory on the host" {
	order '*a.*b.*a.*b.*a' "$OBJECTS/leave_memory.bpf.o"
	[ "$back" -eq 0 ]
	[ "$in_place" -eq 2 ]
}

@test "without a policy memory that graphs use again comes back, once" {
	order "*a.*b.$(printf '*a.%.0s' {1..100})"
	[ "$back" -eq $((32 * MIB)) ]
	[ "$in_place" -lt 100 ]
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

# The policy is the one in docs/MEMORY.md.
@test "a policy can bring it back for a virtual GPU with a reservation" {
	export GBPF_PATIENCE=40
	order a.b.a.b.a "$KEEP" 48 64 64
	[ "$back" -eq $((3 * 32 * MIB)) ]
	[ "$in_place" -eq 0 ]
}

@test "and leave it on the host for others" {
	order a.b.a.b.a "$KEEP"
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

@test "work that uses other memory goes on meanwhile" {
	order a.b.c...a..b..2c "$OBJECTS/fetch_soon.bpf.o" 24
	[ "$in_place" -eq 0 ]
	[ "$back" -ge $((8 * MIB)) ]
}

@test "work that computes addresses from numbers may use any memory" {
	order a.b.c...a..b.!2c "$OBJECTS/fetch_soon.bpf.o" 24
	[ "$in_place" -eq 1 ]
}

@test "with GBPF_CLOSED=0 all work may use any memory" {
	export GBPF_CLOSED=0
	order a.b.c...a..b..2c "$OBJECTS/fetch_soon.bpf.o" 24
	[ "$in_place" -eq 1 ]
}

# Copies would wait for the second launch, and that for the first one, which waits for the program.
@test "work that copies would wait for keeps memory where it is" {
	export GBPF_SOFT_STRICT=1 CUDA_DEVICE_MAX_CONNECTIONS=1
	order a.b.c...a..b.22c "$OBJECTS/fetch_soon.bpf.o" 24
	[ "$in_place" -eq 1 ]
}

# a has come back for b and c has left. d could leave for c now, which the last launch names but does not use.
@test "memory of the host that work uses stays there" {
	order "a.b.c.d..&1b..3&3a" "$OBJECTS/fetch_many.bpf.o" 24 80
	[ "$in_place" -eq 2 ]
	[ "$back" -eq $((16 * MIB)) ]
}

# There is no room for D on the device.
@test "memory that work uses does not leave for an allocation" {
	order a.b.c...a..b..123D "$OBJECTS/fetch_soon.bpf.o" 24
	[ "$out_bytes" -eq $((3 * 16 * MIB)) ]
}

@test "memory that work uses stays where it is" {
	order a.b.c..23a "$OBJECTS/fetch_soon.bpf.o" 24
	[ "$in_place" -eq 1 ]
}
