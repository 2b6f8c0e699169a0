#!/usr/bin/env bats
# Programs that use more memory than their limit: what does not fit lies on the host, and results are those without a limit.

load helpers
load vgpu_helpers

SWAPPING=${GBPF_BUILD:-build}/tests/system/swapping

# digest [OPTION]... -- ARGUMENT...: what the program prints under gbpf run with these options.
digest() {
	local options=()
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	run --separate-stderr timeout 200 gbpf run --device soft "${options[@]}" -- "$SWAPPING" "${@:2}"
	echo "$output" "$stderr"
	[ "$status" -eq 0 ]
	REPLY=$output
}

# same ARGUMENT... : the digest at half of the memory, with swap, is that without a limit.
same_at() { # MEM SWAP ARGUMENT...
	start_soft
	start_daemon
	digest -- "${@:3}"
	local without=$REPLY
	[[ $without =~ ^[0-9a-f]{16}$ ]]
	digest --mem "$1" --swap "$2" -- "${@:3}"
	[ "$REPLY" = "$without" ]
}

@test "a program at twice its limit has the results that it has without one" {
	same_at 64M 256M 8 14 12
}

@test "threads at twice their limit have the results that they have without one" {
	same_at 64M 256M 24 5 6 4
}

@test "buffers that are larger than the limit lie on the host in part" {
	same_at 48M 256M 2 60 3
}

@test "without swap the same program is refused" {
	start_soft
	start_daemon
	run timeout 120 gbpf run --device soft --mem 64M -- "$SWAPPING" 8 14 1
	echo "$output"
	[ "$status" -ne 0 ]
	[[ $output == *cuMemAlloc* ]]
}
