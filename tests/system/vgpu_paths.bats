#!/usr/bin/env bats
# One entry point until the call fails, alone and next to another process of the vGPU: what they got is the limit less the overhead, to
# 2 MiB. The limit is no multiple of the steps by which pools grow, and contexts take memory.

load helpers
load vgpu_helpers

PATHS=${GBPF_BUILD:-build}/tests/system/vgpu_paths
LIMIT=211 # MiB

filled() { # PATH [PATH]
	start_soft --context-memory 11M
	start_daemon
	run timeout 200 gbpf run --device soft --mem "${LIMIT}M" -- "$PATHS" check "$@"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 2 ]
	# Of each process the context, in NVML's whole MiB, and 2 MiB for its computations.
	[[ "${lines[1]}" == "$1: "*" of $((LIMIT - $# * 13)) MiB, "*" left" ]]
}

@test "a process that allocates by 'alloc' until it fails gets the limit less the overhead" {
	filled alloc
}

@test "a process that allocates by 'pitch' until it fails gets the limit less the overhead" {
	filled pitch
}

@test "a process that allocates by 'managed' until it fails gets the limit less the overhead" {
	filled managed
}

@test "a process that allocates by 'async' until it fails gets the limit less the overhead" {
	filled async
}

@test "a process that allocates by 'pool' until it fails gets the limit less the overhead" {
	filled pool
}

@test "a process that allocates by 'create' until it fails gets the limit less the overhead" {
	filled create
}

@test "a process that allocates by 'array-1d' until it fails gets the limit less the overhead" {
	filled array-1d
}

@test "a process that allocates by 'array-3d' until it fails gets the limit less the overhead" {
	filled array-3d
}

@test "a process that allocates by 'mipmapped' until it fails gets the limit less the overhead" {
	filled mipmapped
}

@test "a process that allocates by 'node' until it fails gets the limit less the overhead" {
	filled node
}

@test "two processes that allocate by 'alloc' and 'alloc' at once get the limit less the overhead" {
	filled alloc alloc
}

@test "two processes that allocate by 'async' and 'async' at once get the limit less the overhead" {
	filled async async
}

@test "two processes that allocate by 'create' and 'create' at once get the limit less the overhead" {
	filled create create
}

@test "two processes that allocate by 'array-3d' and 'array-3d' at once get the limit less the overhead" {
	filled array-3d array-3d
}

@test "two processes that allocate by 'node' and 'node' at once get the limit less the overhead" {
	filled node node
}

@test "two processes that allocate by 'alloc' and 'create' at once get the limit less the overhead" {
	filled alloc create
}

@test "two processes that allocate by 'pool' and 'alloc' at once get the limit less the overhead" {
	filled pool alloc
}

@test "two processes that allocate by 'array-3d' and 'managed' at once get the limit less the overhead" {
	filled array-3d managed
}

@test "two processes that allocate by 'node' and 'pitch' at once get the limit less the overhead" {
	filled node pitch
}

@test "two processes that allocate by 'mipmapped' and 'async' at once get the limit less the overhead" {
	filled mipmapped async
}
