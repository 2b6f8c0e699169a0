#!/usr/bin/env bats
# Memory that can leave the device, shared between processes by cuIpcGetMemHandle.

load helpers
load vgpu_helpers

VGPU=${GBPF_BUILD:-build}/tests/system/shared_chunks

SWAP="--mem 64M --swap 256M"
MIB=1048576

# fixed NAME KIND MIB: waits until gbpf mem ls shows that much of the kind.
fixed() {
	local pid=pid_$1
	eventually shows "[k['bytes'] for t in d['tenants'] if t['pid'] == ${!pid} for k in t['gpus'][0]['fixed'] if k['kind'] == '$2'] == [$3 << 20]" gbpf mem ls
}

# has_closed NAME: it has no memory of others any more, once it was asked something.
has_closed() {
	local pid=pid_$1
	ask "$1" used
	gbpf ps --json | python3 -c "import json, sys
sys.exit(any(t['mem_shared'] for t in json.load(sys.stdin)['tenants'] if t['pid'] == ${!pid}))"
}

@test "memory in chunks is opened by another process of the virtual GPU" {
	start_all
	start_servers_with "$SWAP" a b
	expect ok a alloc 40000000 # not a multiple of 2 MiB, of three chunks
	expect 1 a capable
	expect ok a share 0
	expect ok b open
	expect "$pid_a" b read
	expect ok b answers
	expect ok b write
	expect "$pid_b" a read-own
	fixed a shared 40
	charged a 40
	eventually tenant "$pid_b" "t['mem_shared'] == 40000000"
	expect ok b close
	charged b 0
	expect "no memory" b read
	expect ok a free
	charged a 0
	expect 0 a used
}

@test "it is opened in another virtual GPU, with swap or without, and charged to its creator" {
	start_all
	start_servers_with "--mem 256M --swap 256M" a
	start_servers_with "$SWAP" b
	start_servers_with "--mem 32M" c
	expect ok a alloc $((200 * MIB)) # more chunks than a message has
	expect ok a share 0
	expect ok b open
	expect "$pid_a" b read
	charged b 0 200
	expect ok c open
	expect ok c answers
	expect ok c write
	expect "$pid_c" b read
	charged c 0 200
	expect ok c close
	charged c 0
	expect "no memory" c read
	charged a 200
}

@test "memory in chunks of several sizes is opened" {
	start_all
	start_servers_with "--mem 512M --swap 512M" a
	start_servers_with "--mem 32M" b
	expect ok a alloc $((276 * MIB + 4)) # 4 of 64 MiB, one of 16, and one of 6
	expect ok a share 0
	expect ok b open
	expect ok b answers
	expect "$pid_a" b read
	expect ok b write
	expect "$pid_b" a read-own
}

@test "a handle that is opened twice has one address, until it is closed twice" {
	start_all
	start_servers_with "$SWAP" a b
	expect ok a alloc $((20 * MIB))
	expect ok a share 0
	expect ok b open
	expect ok b open
	expect ok b close
	expect "$pid_a" b read
	charged b 0 20
	expect ok b close
	expect "no memory" b read
	charged b 0
	expect CUDA_ERROR_INVALID_VALUE b close
	expect ok b forget
	expect ok b open
	expect "$pid_a" b read
}

@test "each context has an address of its own, which ends with it" {
	start_all
	start_servers_with "$SWAP" a b
	expect ok a alloc $((20 * MIB))
	expect ok a share 0
	expect ok b open
	expect ok b open-elsewhere
	charged b 0 40
	expect ok b end-elsewhere
	charged b 0 20
	expect "$pid_a" b read
}

@test "an address inside of an allocation stands for all of it, and its handle is the same" {
	start_all
	start_servers_with "$SWAP" a b
	expect ok a alloc $((40 * MIB))
	expect ok a share 0
	expect ok b open
	expect ok a share $((33 * MIB))
	expect ok b open # CHECK: at the same address
	expect ok b answers
	expect ok b close
	expect ok b close
	expect CUDA_ERROR_INVALID_VALUE b close
}

@test "the process whose memory it is cannot open it" {
	start_all
	start_servers_with "$SWAP" a
	expect ok a alloc $((20 * MIB))
	expect ok a share 0
	expect CUDA_ERROR_INVALID_CONTEXT a open
}

@test "a handle that is closed while a stream captures is noted until the capture ends" {
	start_all
	start_servers_with "$SWAP" a b
	start_servers_with "--mem 32M" c # without swap
	expect ok a alloc $((20 * MIB))
	expect ok a share 0
	local name
	for name in b c; do
		expect ok $name open
		expect ok $name capture
		expect ok $name close
		charged $name 0 20
		ask $name used # looks at what was closed
		charged $name 0 20
		expect ok $name end-capture
		eventually has_closed $name
		expect ok $name forget
		expect ok $name capture
		expect ok $name open
		expect ok $name end-capture
		expect "$pid_a" $name read
		expect ok $name close
		charged $name 0
	done
}

@test "forged handles are refused" {
	start_all
	start_servers_with "$SWAP" a b
	expect ok a alloc $((20 * MIB))
	local kind
	for kind in magic key zeros process own; do
		expect ok a share 0
		expect ok b forge $kind
		expect CUDA_ERROR_INVALID_VALUE b open
	done
	expect ok a share 0
	expect ok a share 0
	expect ok b forge device
	expect CUDA_ERROR_PEER_ACCESS_UNSUPPORTED b open
	expect ok a share 0
	expect ok b open
	expect "$pid_a" b read
}

@test "memory that was freed cannot be opened, and stays for those that have it" {
	GBPF_PATIENCE=1 start_all # else it is not charged before processes of an earlier gbpfd may have come
	start_servers_with "$SWAP" a b c
	expect ok a alloc $((20 * MIB))
	expect ok a share 0
	expect ok b open
	expect ok a free
	expect CUDA_ERROR_INVALID_VALUE c open
	expect "$pid_a" b read
	charged a 0
	charged b 20
	expect ok b close
	charged b 0
	expect 0 c used
	expect ok a alloc $((20 * MIB))
	expect CUDA_ERROR_INVALID_VALUE c open # the old handle
	expect ok a share 0
	expect ok c open
	expect "$pid_a" c read
}

@test "the memory of a creator that is killed stays for those that have it" {
	start_all
	start_servers_with "$SWAP" a b c
	expect ok a alloc $((20 * MIB))
	expect ok a share 0
	expect ok b open
	kill_server a
	charged b 20
	expect "$pid_a" b read
	expect CUDA_ERROR_INVALID_VALUE c open
	kill_server b
	eventually expect 0 c used
}

@test "a handle outlives gbpfd, and a killed process that has opened it" {
	start_all
	start_servers_with "$SWAP" a b c
	expect ok a alloc $((20 * MIB))
	expect ok a share 0
	expect ok b open
	kill_daemon
	expect "$pid_a" b read
	expect CUDA_ERROR_NOT_READY c open
	restart_daemon
	expect ok c open
	expect "$pid_a" c read
	kill_server b
	expect ok c close
	charged c 0
	charged a 20
	expect ok a free
	charged a 0
}

@test "a creator that is stopped is waited for, but not for ever" {
	start_all
	start_servers_with "$SWAP" a b
	expect ok a alloc $((20 * MIB))
	expect ok a share 0
	kill -STOP "$pid_a"
	expect CUDA_ERROR_NOT_READY b open
	kill -CONT "$pid_a"
	expect ok b open
	expect "$pid_a" b read
}

@test "chunks on the host return, and stay" {
	start_all
	start_servers_with "$SWAP" a b
	expect ok a alloc $((40 * MIB))
	expect ok a grow $((40 * MIB))
	expect ok a grow $((40 * MIB))
	eventually shows "[t['gpus'][0]['swapped'] > 0 for t in d['tenants'] if t['pid'] == $pid_a] == [True]" gbpf mem ls
	expect ok a share 0
	fixed a shared 40
	expect ok b open
	expect "$pid_a" b read
	expect ok a grow $((40 * MIB))
	fixed a shared 40
	expect ok b write
	expect "$pid_b" a read-own
}

@test "memory that is larger than the limit cannot be shared" {
	start_all
	start_servers_with "$SWAP" a
	expect ok a alloc $((100 * MIB))
	expect CUDA_ERROR_OUT_OF_MEMORY a share 0
	expect "$pid_a" a read-own
}

@test "memory that work keeps on the host can be shared when that has ended" {
	start_all
	start_servers_with "$SWAP" a b
	expect ok a alloc $((40 * MIB))
	expect ok a grow $((40 * MIB))
	expect ok a work
	expect CUDA_ERROR_NOT_READY a share 0
	expect ok a finish
	expect ok a share 0
	expect ok b open
	expect "$pid_a" b read
}

@test "memory on the device is shared while work goes on" {
	start_all
	start_servers_with "$SWAP" a b
	expect ok a alloc $((40 * MIB))
	expect ok a work
	expect ok a share 0
	expect ok b open
	expect "$pid_a" b read
	expect ok a finish
}

@test "small allocations are opened where they lie in their pack, which is open until each was closed" {
	start_all
	start_servers_with "$SWAP" a b
	start_servers_with "--mem 64M" c
	expect ok a grow 1000
	expect ok a alloc 40000
	expect 1 a capable
	expect ok a share 0
	fixed a shared 2
	expect ok b open
	expect "$pid_a" b read
	expect ok b write
	expect "$pid_b" a read-own
	charged b 0 2
	expect ok b keep
	expect ok a alloc 5000
	expect "$pid_a" a read-own
	expect ok a share 0
	expect ok b open
	expect ok b open
	expect "$pid_a" b read
	charged b 0 2
	expect ok c open # without swap
	expect "$pid_a" c read
	charged c 0 2
	charged a 2
	expect ok b close-kept
	expect CUDA_ERROR_INVALID_VALUE b close-kept
	expect ok b close
	expect "$pid_a" b read
	expect ok b close
	expect CUDA_ERROR_INVALID_VALUE b close
	expect "no memory" b read
	charged b 0
}

@test "a handle of a small allocation opens nothing outside of its pack" {
	start_all
	start_servers_with "$SWAP" a b
	expect ok a alloc 5000
	local kind
	for kind in between behind; do
		expect ok a share 0
		expect ok b forge $kind
		expect CUDA_ERROR_INVALID_VALUE b open
		charged b 0
	done
	expect ok a share 0
	expect ok b open
	expect ok a share 0
	expect ok b forge behind
	expect CUDA_ERROR_INVALID_VALUE b open # the pack is open
	expect ok a alloc $((40 * MIB))
	expect ok a share 0
	expect ok b forget
	expect ok b forge behind # in memory that is no pack
	expect CUDA_ERROR_INVALID_VALUE b open
	charged b 0 2
}

@test "a pack is freed with its last allocation, and stays for those that have it open" {
	GBPF_PATIENCE=1 start_all
	start_servers_with "$SWAP" a b c
	expect ok a alloc 5000
	expect ok a share 0
	expect ok b open
	expect ok a free
	charged a 0
	expect CUDA_ERROR_INVALID_VALUE c open
	expect "$pid_a" b read
	charged b 2
	expect ok b close
	charged b 0
}

@test "memory in chunks and memory of a virtual GPU without swap are shared with one process" {
	start_all
	start_servers_with "$SWAP" a b
	start_servers_with "--mem 64M" c
	expect ok a alloc $MIB
	expect ok a share 0
	expect ok b open
	expect "$pid_a" b read
	expect ok b keep
	expect ok c alloc $((20 * MIB))
	expect ok c share 0
	expect ok b open
	expect "$pid_c" b read
	expect ok a forget
	expect ok a open
	expect ok a close
	expect ok b close
	expect ok b close-kept
}

@test "a process in no virtual GPU cannot open it" {
	start_all
	start_servers_with "$SWAP" a
	start_servers_with "" b
	expect ok a alloc $((20 * MIB))
	expect ok a share 0
	expect CUDA_ERROR_INVALID_VALUE b open
}

@test "memory of a process that has some open leaves and returns" {
	start_all
	start_servers_with "$SWAP" a b
	expect ok a alloc $((20 * MIB))
	expect ok a share 0
	expect ok b open
	expect ok b alloc $((40 * MIB))
	expect ok b grow $((40 * MIB))
	eventually shows "[t['gpus'][0]['swapped'] > 0 for t in d['tenants'] if t['pid'] == $pid_b] == [True]" gbpf mem ls
	expect "$pid_a" b read
	expect ok b write
	expect "$pid_b" a read-own
	expect "$pid_b" b read-own
	expect ok b close
	expect "$pid_b" b read-own
}

@test "killed processes and daemons leave the figures right" {
	local i
	start_all
	start_servers_with "$SWAP" keeper a0 b0 a1 b1 a2 b2 a3 b3 a4 b4 a5 b5
	expect ok keeper alloc $((8 * MIB))
	for i in {0..5}; do
		expect ok "a$i" alloc $((20 * MIB))
		expect ok "a$i" share 0
		expect ok "b$i" open
		case $((i % 3)) in
		0) kill_daemon && kill_server "a$i" && restart_daemon ;;
		1) kill_server "a$i" && kill_daemon && restart_daemon ;;
		2) kill_server "a$i" ;;
		esac
		charged "b$i" 20
		charged keeper 8
		kill_server "b$i"
		eventually expect 8 keeper used
	done
	expect ok keeper free
	expect 0 keeper used
}
