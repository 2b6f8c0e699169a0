#!/usr/bin/env bats
# Memory that moves to the host in one vGPU because another one needs it, on a GPU of 256 MiB.

load helpers
load vgpu_helpers

VGPU=${GBPF_BUILD:-build}/tests/system/reclaim # of start_servers_with

start() { # a has taken all of the GPU, with these options; b, with those
	start_soft --mem 256M
	start_daemon
	daemon=${pids[-1]}
	# shellcheck disable=SC2086 # several words
	gbpf vgpu create a --mem 256M --swap 512M $1
	start_servers_with "--vgpu a" a
	for ((i = 0; i < 15; i++)); do
		expect ok a alloc 16
	done
	# shellcheck disable=SC2086
	gbpf vgpu create b --mem 256M $2
	start_servers_with "--vgpu b" b
}

# holds NAME MIB: what it holds of the GPU.
holds() { eventually shows "d['devices'][0]['mem_used'] == $2 << 20" gbpf vgpu show "$1"; }

waits() { eventually shows "d['waiting'] == $2" gbpf vgpu show "$1"; }

@test "a vGPU shrinks to its reservation for another one, and keeps its data" {
	start "--reserve 64M" "--reserve 96M"
	expect ok b alloc 96
	expect ok b alloc 64
	expect ok a check
	expect ok b alloc 32
	holds b 192
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 16
	expect ok a check
	expect ok b check
	holds a 64
	event "MiB of GPU memory to the host, since another vGPU needs it"
	expect ok a alloc 16
	expect ok b check
	expect ok a check
	holds b 192
}

@test "without reservations the driver's memory is taken where the device is full" {
	start "" ""
	expect ok b alloc 100
	expect ok b create 20
	expect ok a check
	expect ok b check
	holds b 120
}

@test "what a pool keeps is freed for another vGPU, and not moved" {
	start_soft --mem 256M
	start_daemon
	gbpf vgpu create a --mem 256M --swap 512M
	start_servers_with "--vgpu a" a
	for ((i = 0; i < 8; i++)); do
		expect ok a alloc 16
	done
	expect ok a keep 48
	expect ok a keep 64
	holds a 240
	gbpf vgpu create b --mem 256M
	start_servers_with "--vgpu b" b
	expect ok b alloc 40
	expect ok a check
	holds a 192 # without the older one
	eventually tenant "$pid_a" 't["stats"]["mem_out_bytes"] == 0'
}

@test "memory of another vGPU that was moved is not seen in new memory" {
	start "" "--swap 64M" # every alloc and create reads its memory first
	for ((i = 0; i < 5; i++)); do
		expect ok b create 10
		expect ok b alloc 30
	done
	expect ok b check
	expect ok b free
	expect ok b alloc 30
	expect ok a check
}

@test "memory that was moved does not return at once when the vGPU that has it frees other memory" {
	start "" ""
	expect ok b alloc 100 # 112 MiB, in whole chunks
	expect ok b free
	expect ok a free
	holds a 112
	expect ok b alloc 100
	expect ok a check
}

@test "where no vGPU can shrink, memory with swap lies on the host and other memory is refused" {
	start "--reserve 200M" "--swap 128M"
	expect ok b alloc 100
	expect ok b check
	expect CUDA_ERROR_OUT_OF_MEMORY b create 100
	expect ok a check
	eventually shows "d['devices'][0]['mem_used'] >= 200 << 20" gbpf vgpu show a
}

@test "a stopped program is named, and the call is refused after a second" {
	export GBPF_PATIENCE=1 # a timeout of gbpfd is tested
	start "" ""
	kill -STOP "$pid_a"
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 100
	event "(pid $pid_a) has not answered the order to release 112 MiB of GPU memory, which another vGPU needs, within 1000 ms"
	kill -CONT "$pid_a"
	expect ok a check
}

@test "a program that is killed while it has an order gives its memory" {
	start "" ""
	kill -STOP "$pid_a"
	echo "alloc 100" >&"$in_b"
	waits b 1
	kill -9 "$pid_a"
	answer_of b
	[ "$REPLY" = ok ]
	expect ok b check
}

@test "a question survives a restart of gbpfd" {
	start "" ""
	kill -STOP "$pid_a"
	echo "alloc 100" >&"$in_b"
	waits b 1
	kill_daemon
	start_daemon
	kill -CONT "$pid_a"
	answer_of b
	[ "$REPLY" = ok ]
	expect ok a check
	expect ok b check
}

@test "a call that began to wait without gbpfd takes memory of another vGPU later" {
	start "" "--wait 1000s"
	kill_daemon
	echo "alloc 100" >&"$in_b"
	start_daemon
	answer_of b
	[ "$REPLY" = ok ]
	expect ok a check
	expect ok b check
}

@test "a policy says how much is taken for a call" {
	start "" ""
	gbpf policy swap "${GBPF_BUILD:-build}/tests/system/take_some.bpf.o"
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 120 # 16 MiB are free; the second attempt reclaims once more
	holds a 144
	expect ok b alloc 112
	gbpf vgpu set a --prio 1
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 16
	holds a 144
	expect ok a check
}

@test "memory of the host is made while another vGPU may need memory, and given back after that" {
	start_soft --mem 256M
	start_daemon
	machine proc/pressure/memory 'some avg10=0.00 avg60=0.00 avg300=0.00 total=0'
	start_on_machine "--mem 256M --swap 512M" a
	for ((i = 0; i < 8; i++)); do
		expect ok a alloc 16
	done
	start_servers_with "--mem 160M" b
	eventually tenant "$pid_a" 't["swap_used"] == 128 << 20'
	expect ok a check
	kill -9 "$pid_b"
	eventually tenant "$pid_a" 't["swap_used"] == 0'
	expect ok a check
}

# copied NAME MIB: what copies of that program have moved, since `copies` was set.
copied() { [ "$(copies_of "$1")" -eq $((copies + ($2 << 20))) ]; }
copies_of() {
	local -n pid=pid_$1
	gbpf --json device --soft | python3 -c 'import json, sys
print(sum(c["copied_bytes"] for c in json.load(sys.stdin)["contexts"] if c["pid"] == int(sys.argv[1])))' "$pid"
}

@test "memory of a program without work is copied before it has to leave" {
	start_soft --mem 256M
	start_daemon
	machine proc/pressure/memory 'some avg10=0.00 avg60=0.00 avg300=0.00 total=0'
	start_on_machine "--mem 256M --swap 512M" a
	for ((i = 0; i < 8; i++)); do
		expect ok a alloc 16
	done
	copies=$(copies_of a)
	start_servers_with "--mem 192M" b
	eventually copied a 128
	for ((i = 0; i < 11; i++)); do
		expect ok b alloc 16
	done
	eventually tenant "$pid_a" 't["stats"]["mem_out_bytes"] >= 48 << 20'
	copied a 128
	expect ok a check
}

@test "what work has changed since it was copied is copied again" {
	start_soft --mem 256M
	start_daemon
	machine proc/pressure/memory 'some avg10=0.00 avg60=0.00 avg300=0.00 total=0'
	start_on_machine "--mem 256M --swap 512M" a
	for ((i = 0; i < 8; i++)); do
		expect ok a alloc 16
	done
	copies=$(copies_of a)
	start_servers_with "--mem 192M" b
	eventually copied a 128
	expect ok a renew
	for ((i = 0; i < 11; i++)); do
		expect ok b alloc 16
	done
	eventually tenant "$pid_a" 't["stats"]["mem_out_bytes"] >= 48 << 20'
	expect ok a check
}

@test "two vGPUs that take memory of each other keep their data" {
	start "--reserve 32M" "--swap 512M --reserve 32M"
	for ((i = 0; i < 4; i++)); do
		expect ok b alloc 60
		expect ok a alloc 20
		expect ok a check
		expect ok b check
	done
}
