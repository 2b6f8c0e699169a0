#!/usr/bin/env bats
# Managed memory of programs in virtual GPUs with swap: it leaves the device and comes back while they run.

load helpers
load vgpu_helpers

FETCHING=${GBPF_BUILD:-build}/tests/system/fetching
MIB=$((1 << 20))

@test "managed memory beyond the limit is charged to swap, and no longer once it is freed" {
	start_all
	start_servers_with "--mem 64M --swap 256M" a
	for _ in {1..6}; do
		expect ok a managed 16
	done
	expect "96 of 320" a used
	eventually tenant "$pid_a" 't["mem_used"] == 64 << 20 and t["swap_used"] == t["pinned_used"] == 32 << 20'
	expect ok a managed 200 # in chunks, where there is room
	expect "296 of 320" a used
	eventually tenant "$pid_a" 't["mem_used"] == 64 << 20 and t["swap_used"] == 232 << 20'
	for _ in {1..7}; do
		expect ok a free
	done
	expect "0 of 320" a used
	eventually tenant "$pid_a" 't["mem_used"] == t["swap_used"] == t["pinned_used"] == 0'
}

@test "managed memory makes room for memory of any kind" {
	start_all
	start_servers_with "--mem 64M --swap 256M" a
	expect ok a managed 48
	expect ok a take-array
	expect ok a take-pitch
	expect ok a alloc 40 # at least two of three chunks have left
	eventually tenant "$pid_a" 't["mem_used"] <= 64 << 20 and t["swap_used"] >= 32 << 20'
}

@test "gbpf mem ls shows managed memory as such that can leave" {
	local of
	start_all
	start_servers_with "--mem 64M --swap 256M" a
	expect ok a managed 32
	expect ok a take-managed-1000
	of="[t['gpus'][0] for t in d['tenants'] if t['pid'] == $pid_a][0]"
	eventually shows "$of['movable'] == 32 << 20 and [f['kind'] for f in $of['fixed']] == ['managed']" gbpf mem ls
	expect ok a managed 48
	eventually shows "$of['movable'] + $of['swapped'] == 80 << 20 and $of['swapped'] >= 18 << 20" gbpf mem ls
	run gbpf mem ls --why # settled: the server waits for a command
	echo "$output"
	[[ $output == *"managed memory of less than 2 MiB, or that the GPU has to itself"* ]]
}

@test "without swap managed memory ends at the limit" {
	start_all
	start_servers 64 a
	expect ok a managed 64
	expect CUDA_ERROR_OUT_OF_MEMORY a managed 2
	expect ok a free
	expect CUDA_ERROR_OUT_OF_MEMORY a managed 66
}

@test "more managed memory than the GPU has is refused, whatever swap has" {
	start_soft --mem 96M
	start_daemon
	start_servers_with "--mem 64M --swap 512M" a
	expect CUDA_ERROR_OUT_OF_MEMORY a managed 100
	eventually event "cuMemAllocManaged of 100 MiB refused: the GPU is full"
	expect ok a managed 80
	expect CUDA_ERROR_OUT_OF_MEMORY a managed 32
	expect "80 of 576" a used
}

@test "a program that is killed leaves the figures right, and the next one has all memory" {
	start_all
	gbpf -q vgpu create train --mem 64M --swap 64M
	start_servers_with "--vgpu train" a b
	expect ok b managed 16
	for _ in {1..6}; do
		expect ok a managed 16
	done
	expect "112 of 128" b used
	kill_server a
	eventually expect "16 of 128" b used
	for _ in {1..7}; do
		expect ok b managed 16
	done
	expect "128 of 128" b used
	expect CUDA_ERROR_OUT_OF_MEMORY b managed 2
}

@test "a daemon that is killed finds managed memory where it was" {
	start_all
	start_servers_with "--mem 64M --swap 64M" a
	for _ in {1..6}; do
		expect ok a managed 16
	done
	kill_daemon
	expect "96 of 128" a used
	expect ok a free
	restart_daemon
	eventually tenant "$pid_a" 't["mem_used"] + t["swap_used"] == 80 << 20'
	expect ok a managed 48
	expect "128 of 128" a used
}

@test "managed memory leaves for another virtual GPU" {
	start_soft --mem 128M
	start_daemon
	start_servers_with "--mem 96M --swap 128M" a
	expect ok a managed 96 # of which the soft GPU itself has nothing
	gbpf -q vgpu create kept --mem 64M --reserve 32M # so gbpfd grants what the others may hold: 96 MiB
	start_servers_with "--mem 64M" b
	expect ok b alloc 32
	eventually tenant "$pid_a" 't["mem_used"] <= 64 << 20 and t["mem_used"] + t["swap_used"] == 96 << 20'
}

# order TEXT: sets back and out to what the program's launches have moved; buffers of 48 MiB, a limit of 64.
order() {
	local pid
	start_soft
	start_daemon
	mkfifo "$GBPF_RUNTIME_DIR/in" "$GBPF_RUNTIME_DIR/out"
	timeout 200 gbpf run --device soft --mem 64M --swap 256M -- "$FETCHING" --managed 48 "$1" \
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

@test "launches use managed memory on the host in place, until they have lost enough" {
	export GBPF_PATIENCE=40
	order a.b.a
	[ "$out_bytes" -eq $((32 * MIB)) ]
	[ "$back" -eq 0 ]
	[ "$in_place" -eq 1 ]
}

@test "managed memory that launches need comes back, and other memory leaves for it" {
	export GBPF_PATIENCE=40
	order a.b.a.a.a.a.a.a
	[ "$back" -eq $((32 * MIB)) ]
	[ "$out_bytes" -eq $((64 * MIB)) ]
}
