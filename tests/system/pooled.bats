#!/usr/bin/env bats
# Memory of cuMemAllocFromPoolAsync that can leave the device: reuse, what pools keep of it, and what they say.

load helpers

POOLED=${GBPF_BUILD:-build}/tests/system/pooled

right() { # CHECK...
	start_soft
	start_daemon
	run timeout 120 gbpf run --device soft --mem 64M --swap 64M -- "$POOLED" "$@"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$output" = right ]
}

@test "a stream gets at once the memory that it has freed" {
	right same-stream
}

@test "another stream gets freed memory once no work uses it" {
	right other-stream
}

@test "memory is used again for as many units, with the bytes that were asked for" {
	right sizes
}

@test "a pool keeps what its threshold allows, and its figures contain that" {
	right figures
}

@test "memory that a pool keeps makes room for other memory" {
	right room
}

@test "an allocation is refused beyond the limit and swap, which freed memory does not fill" {
	right refusal
	run gbpf events
	echo "$output"
	[[ $output == *"cuMemAllocFromPoolAsync of "*" MiB refused: "* ]]
}

@test "an allocation waits for work before a free rather than being refused" {
	right pending
}

@test "allocations of a destroyed pool live until they are freed" {
	right destroyed
}

@test "memory of a pool that can be exported does not leave" {
	right exportable
}

@test "memory that a capture allocates is its graph's" {
	right capture
}
