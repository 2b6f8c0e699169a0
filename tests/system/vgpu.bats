#!/usr/bin/env bats
# Limits of device memory (gbpf run --mem): programs on the soft GPU, killed programs, a killed gbpfd, messages.

load helpers
load vgpu_helpers

LIMIT=192 # MiB; a multiple of what each kind of `vgpu fill` takes

limited() { # MIB COMMAND...
	gbpf run --device soft --mem "$1M" -- "${@:2}"
}

fill() { # KIND: all of the limit is used, to 2 MiB; the rest is checked by the program
	start_soft
	start_daemon
	run limited "$LIMIT" "$VGPU" fill "$1"
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "cuMemAlloc of 64 MiB ends at the limit, and all of it comes back" {
	fill linear-64M
}

@test "cuMemAlloc of 3 MiB ends at the limit, and all of it comes back" {
	fill linear-3M
}

@test "cuMemAlloc of 1000 bytes ends at the limit, and all of it comes back" {
	fill linear-1000
}

@test "cuMemAllocPitch ends at the limit, and all of it comes back" {
	fill pitch
}

@test "cuMemAllocManaged ends at the limit, and all of it comes back" {
	fill managed
}

@test "cuMemCreate ends at the limit, and all of it comes back" {
	fill create
}

@test "cuArray3DCreate ends at the limit, and all of it comes back" {
	fill array
}

@test "small arrays share units: they end at the limit, and all of it comes back" {
	fill array-1M
	run limited "$LIMIT" "$VGPU" fill array-64K
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "small arrays that threads make at once share the last unit" {
	start_soft
	start_daemon
	limited 80 "${GBPF_BUILD:-build}/tests/system/vgpu_pools" small-arrays
}

@test "an array with one row is charged for eight" {
	fill array-1d
}

@test "cuMemAllocAsync ends at the limit, and all of it comes back" {
	fill async
}

@test "cuMemAllocFromPoolAsync ends at the limit, and all of it comes back" {
	fill pool
}

@test "two processes of a vGPU that race never exceed its limit, and use all of it" {
	start_all
	run timeout 200 gbpf run --device soft --mem 64M -- "$VGPU" race
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == "most 64 MiB" ]]
}

@test "memory of a context that is destroyed, released or reset is returned" {
	start_all
	limited 64 "$VGPU" contexts
}

@test "a chunk is charged until its last handle is released and its last mapping is gone" {
	start_all
	limited 64 "$VGPU" chunks
}

@test "memory that is freed in stream order returns, and that of destroyed pools" {
	start_all
	limited 64 "$VGPU" frees
}

@test "a program that is replaced by another leaves nothing behind" {
	start_all
	limited "$LIMIT" "$VGPU" exec
}

@test "a forked child that calls nothing changes no figure" {
	start_all
	limited 64 "$VGPU" fork
}

@test "programs of separate vGPUs do not see each other's use" {
	start_all
	start_servers 64 a
	start_servers 48 b
	expect ok a alloc 60
	expect "0 of 48" b used
	expect ok b alloc 48
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 2
	expect "60 of 64" a used
	expect ok a alloc 4
}

@test "memory of a killed process returns to its vGPU" {
	start_all
	start_servers 64 a b
	expect ok a alloc 40
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 40
	expect "40 of 64" b used
	kill -9 "$pid_a"
	returned() { expect "0 of 64" b used; }
	eventually returned 2>/dev/null
	expect ok b alloc 64
}

@test "the end of a program is recorded with the most memory that it held" {
	start_all
	start_servers 64 a b
	expect ok a alloc 40
	expect ok a free
	expect ok a alloc 8
	killed_holding_at_most 40 "$pid_a"
}

@test "gbpf ps shows what a process holds and its limit" {
	start_all
	start_servers 64 a b
	expect ok a alloc 40
	expect ok b alloc 10
	eventually tenant "$pid_a" 't["mem_used"] == 40 << 20 and t["mem_limit"] == 64 << 20 and t["mem_vgpu_used"] == 50 << 20'
	eventually tenant "$pid_b" 't["mem_used"] == 10 << 20 and t["mem_limit"] == 64 << 20'
	expect ok a free
	eventually tenant "$pid_a" 't["mem_used"] == 0 and t["mem_vgpu_used"] == 10 << 20'
	eventually prints "(?s)\A[^\n]*MEMORY.*\n *$pid_b [^\n]*10\.0 MiB/64\.0 MiB" gbpf ps
}

@test "limit and use survive gbpfd: charges go on without it, and the limit holds after its restart" {
	start_all
	start_servers 64 a b
	expect ok a alloc 20
	expect ok b alloc 20
	kill_daemon
	expect "40 of 64" a used
	expect ok a alloc 10
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 20
	expect ok b alloc 2
	start_daemon
	daemon=${pids[-1]}
	eventually tenant "$pid_a" 't["mem_used"] == 30 << 20 and t["mem_limit"] == 64 << 20'
	eventually tenant "$pid_b" 't["mem_used"] == 22 << 20 and t["mem_vgpu_used"] == 52 << 20'
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 14
	expect ok b alloc 12
	expect "64 of 64" a used
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 2
	expect ok b free
	kill -9 "$pid_b"
	returned() { expect "30 of 64" a used; }
	eventually returned 2>/dev/null
}

@test "memory of a process that is killed while gbpfd is away returns after the restart" {
	start_all
	start_servers 64 a b
	expect ok a alloc 20
	expect ok b alloc 40
	kill_daemon
	kill -9 "$pid_b"
	expect "60 of 64" a used
	start_daemon
	daemon=${pids[-1]}
	returned() { expect "20 of 64" a used; }
	eventually returned 2>/dev/null
	expect ok a alloc 44
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 2
}

@test "after a restart of gbpfd a new process waits for the account of those that run" {
	local dir=$GBPF_RUNTIME_DIR
	start_all
	mkfifo "$dir/a.in" "$dir/a.out" "$dir/go"
	limited 64 bash -c "'$VGPU' serve <'$dir/a.in' >'$dir/a.out' & read <'$dir/go'; '$VGPU' serve <<<used >'$dir/late'; wait" \
		>>"$dir/servers.log" 2>&1 3>&- &
	pids+=($!)
	exec {in_a}<>"$dir/a.in" {out_a}<>"$dir/a.out"
	answer_of a
	pids+=("$REPLY")
	pid_a=$REPLY
	expect ok a alloc 40
	kill -STOP "$pid_a"
	kill_daemon
	start_daemon
	daemon=${pids[-1]}
	echo >"$dir/go"
	eventually event "gbpfd was restarted; try again"
	[ ! -s "$dir/late" ]
	kill -CONT "$pid_a"
	joined() { grep -qx "40 of 64" "$dir/late"; }
	eventually joined
	expect ok a alloc 24
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 2
}

start_heavy() { # contexts that take 24 MiB each
	start_soft --context-memory 24M
	start_daemon
	daemon=${pids[-1]}
}

@test "contexts and modules count against the limit, as overhead" {
	start_heavy
	limited 80 "$VGPU" overhead 24
}

@test "overhead that is found late counts beyond the limit, too, and is returned" {
	start_all
	limited 64 "$VGPU" modules
}

@test "without NVML overhead is the difference that a call makes" {
	start_heavy
	mkdir "$GBPF_RUNTIME_DIR/alone"
	cp "$GBPF_PREFIX/lib/gbpf/soft/libcuda.so.1" "$GBPF_RUNTIME_DIR/alone"
	GBPF_REAL_CUDA="$GBPF_RUNTIME_DIR/alone/libcuda.so.1" gbpf run --mem 80M -- "$VGPU" overhead 24 later 2>&1 | tee "$GBPF_RUNTIME_DIR/out"
	[ "$(wc -l <"$GBPF_RUNTIME_DIR/out")" -eq 1 ] # gbpfd does not take the copy for its soft GPU
}

@test "a context that does not fit is refused, and takes nothing" {
	start_heavy
	limited 16 "$VGPU" no-context
	start_servers 64 a b
	expect "48 of 64" a used
	expect ok a alloc 16
	expect "64 of 64" b used
	eventually tenant "$pid_a" 't["mem_overhead"] == 24 << 20 and t["mem_used"] == 40 << 20'
	eventually tenant "$pid_b" 't["mem_overhead"] == 24 << 20 and t["mem_used"] == 24 << 20'
	expect CUDA_ERROR_OUT_OF_MEMORY b context
	expect "64 of 64" b used
	expect ok a free
	expect CUDA_ERROR_OUT_OF_MEMORY b context
	kill -9 "$pid_a"
	returned() { expect "24 of 64" b used; }
	eventually returned 2>/dev/null
	expect ok b context
	expect "48 of 64" b used
}

@test "overhead survives gbpfd" {
	start_heavy
	start_servers 64 a b
	kill_daemon
	expect "48 of 64" a used
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 18
	start_daemon
	daemon=${pids[-1]}
	eventually tenant "$pid_a" 't["mem_overhead"] == 24 << 20 and t["mem_vgpu_used"] == 48 << 20'
	expect ok a alloc 16
}

@test "at the limit small allocations use the room of blocks that are charged" {
	start_all
	limited 64 "$VGPU" small
}

@test "pools are charged in the steps in which they grow" {
	start_soft
	start_daemon
	limited 80 "${GBPF_BUILD:-build}/tests/system/vgpu_pools" steps
}

@test "what is left of a limit after the steps of a pool is allocated in units" {
	start_soft
	start_daemon
	limited 80 "${GBPF_BUILD:-build}/tests/system/vgpu_pools" outside
}

@test "calls that are allowed during a capture leave it valid in a process that uses pools" {
	start_soft
	start_daemon
	limited 80 "${GBPF_BUILD:-build}/tests/system/vgpu_pools" captures
}

@test "what a limit leaves behind the steps of a pool is given out while streams are busy" {
	start_soft
	start_daemon
	limited 80 timeout 200 "${GBPF_BUILD:-build}/tests/system/vgpu_pools" outside-busy
}

@test "a pool that was destroyed is charged until its memory is given back" {
	start_soft
	start_daemon
	limited 80 timeout 200 "${GBPF_BUILD:-build}/tests/system/vgpu_pools" destroyed
}

@test "memory of graphs counts against the limit" {
	start_all
	limited 64 "$VGPU" graphs
}

@test "pinned host memory has a limit of its own, and all of it comes back" {
	start_all
	gbpf run --device soft --mem 64M --pinned 48M -- "$VGPU" pinned 48
}

@test "pinned host memory of a killed process returns, and gbpf ps shows it" {
	start_all
	start_servers_with "--mem 64M --pinned 32M" a b
	expect ok a pin 20
	expect CUDA_ERROR_OUT_OF_MEMORY b pin 13
	expect ok b pin 12
	eventually tenant "$pid_a" 't["pinned_used"] == 20 << 20 and t["pinned_limit"] == 32 << 20 and t["mem_used"] == 0'
	eventually tenant "$pid_b" 't["pinned_used"] == 12 << 20 and t["pinned_limit"] == 32 << 20'
	expect CUDA_ERROR_OUT_OF_MEMORY b pin 1
	kill -9 "$pid_a"
	returned() { ask b pin 20 && [ "$REPLY" = ok ]; }
	eventually returned
	expect CUDA_ERROR_OUT_OF_MEMORY b pin 1
}

@test "without --pinned a virtual GPU may pin half of the machine's memory" {
	start_all
	start_servers 64 a
	local half=$(($(getconf _PHYS_PAGES) * $(getconf PAGE_SIZE) / 2))
	eventually tenant "$pid_a" "t['pinned_limit'] == $half"
	expect ok a pin 16
	eventually tenant "$pid_a" 't["pinned_used"] == 16 << 20'
}

@test "all virtual GPUs together pin no more than gbpfd allows" {
	start_soft
	start_daemon --pinned-mib 48
	start_servers 64 a
	expect ok a pin 20
	start_servers 64 b
	expect ok b pin 20
	expect CUDA_ERROR_OUT_OF_MEMORY a pin 9
	expect ok a pin 8
	expect CUDA_ERROR_OUT_OF_MEMORY b pin 1
	kill -9 "$pid_a"
	returned() { ask b pin 28 && [ "$REPLY" = ok ]; }
	eventually returned
	expect CUDA_ERROR_OUT_OF_MEMORY b pin 1
	run gbpf run --device soft --mem 64M --pinned 49M -- "$VGPU" pinned 48 # the vGPU of b has all
	[ "$status" -eq 1 ]
}

@test "memory of another process is shown as shared, and charged once" {
	start_all
	start_servers 64 a b
	expect ok a share 10
	expect ok b open
	expect "10 of 64" b used
	eventually tenant "$pid_a" 't["mem_used"] == 10 << 20 and t["mem_shared"] == 0'
	eventually tenant "$pid_b" 't["mem_used"] == 0 and t["mem_shared"] == 10 << 20'
	expect ok b close
	eventually tenant "$pid_b" 't["mem_shared"] == 10 << 20' # it was opened twice
	expect ok b close
	eventually tenant "$pid_b" 't["mem_shared"] == 0'
	expect ok a share-chunk 6
	expect ok b open-chunk 6
	expect "16 of 64" b used
	eventually tenant "$pid_b" 't["mem_used"] == 0 and t["mem_shared"] == 6 << 20'
	expect ok b close-chunk 6
	eventually tenant "$pid_b" 't["mem_shared"] == 0'
}

refused() { # EXIT MESSAGE ARGUMENT...: no program is started
	run gbpf run --device soft "${@:3}" -- touch "$GBPF_RUNTIME_DIR/started"
	echo "$output"
	[ "$status" -eq "$1" ]
	[ "$output" = "$2" ]
	[ ! -e "$GBPF_RUNTIME_DIR/started" ]
}

@test "sizes that are none are refused" {
	local size hint
	start_all
	hint="Use a number with K, M, G or T: at least 16M, at most the GPU's memory; or none"
	for size in 0 -1 5X '' M 1.M.M 15M 16777215 1e300 4GG; do
		refused 125 "gbpf: run: invalid size '$size' for --mem. $hint" --mem "$size"
	done
	limited 16 true
}

@test "--mem is refused with --off and in a vGPU" {
	refused 125 "gbpf: run: --off switches the limits of a virtual GPU off. Leave --off away" --off --mem 64M
	start_all
	run limited 64 gbpf run --device soft --mem 32M -- true
	[ "$status" -eq 125 ]
	[ "$output" = "gbpf: run: this process is in a virtual GPU already. Leave the option away: the program gets the limits that are in force" ]
	start_servers 64 a
	expect ok a alloc 10
	run limited 64 gbpf run --device soft -- "$VGPU" fill linear-3M # inherits the limit
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$output" = "linear-3M: 16 items" ]
}

@test "a limit above the card's memory is refused when the program starts CUDA" {
	local size
	start_all
	run limited 1024 "$VGPU" init
	[ "$output" = CUDA_SUCCESS ]
	for size in "1000T:1048576000" "1025M:1025" "1025M --swap 1G:1025" "1025M --swap 1G --show mem:1025"; do
		# shellcheck disable=SC2086 # several words
		run gbpf run --device soft --mem ${size%:*} -- "$VGPU" init
		echo "$output"
		[ "${lines[0]}" = "gbpf: the memory limit of ${size#*:} MiB exceeds the GPU's 1024 MiB; use a lower one ('gbpf run --mem')" ]
		[ "${lines[1]}" = CUDA_ERROR_NOT_PERMITTED ]
		[ "${#lines[@]}" -eq 2 ]
	done
}

@test "a GBPF_VGPU that is none keeps the program off the GPU" {
	local value
	start_all
	for value in 9x 1 7/9x 1/ a/web 0:1:mem=16777216 1: 1:0 1:5X: :5: 1:1:mem=1 1:1:mem=16777216X 1:1:size=16777216; do
		GBPF_VGPU=$value run gbpf run --device soft -- "$VGPU" init
		echo "$output"
		[ "${lines[0]}" = "gbpf: invalid GBPF_VGPU '$value': it is neither a name nor what 'gbpf run' sets" ]
		[ "${lines[1]}" = CUDA_ERROR_NOT_PERMITTED ]
	done
}

@test "a program of a vGPU does not run without gbpfd" {
	start_all
	kill_daemon
	run env GBPF_VGPU=1:1:mem=67108864 GBPF_REAL_CUDA="$GBPF_PREFIX/lib/gbpf/soft/libcuda.so.1" \
		LD_PRELOAD="$GBPF_PREFIX/lib/gbpf/shim/libcuda.so.1" "$VGPU" init
	echo "$output"
	[ "${lines[0]}" = "gbpf: cannot connect to gbpfd, which counts the memory of this program's virtual GPU: Connection refused; start it again with 'gbpf run'" ]
	[ "${lines[1]}" = CUDA_ERROR_SYSTEM_NOT_READY ]
}
