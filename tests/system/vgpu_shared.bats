#!/usr/bin/env bats
# Memory of processes that have exited and that others have imported: these are charged for it.

load helpers
load vgpu_helpers

# The use of the account, and so cuMemGetInfo's.
used_is() { # MIB of MIB NAME
	ask "$3" used
	[ "$REPLY" = "$1 of $2" ]
}

opened_by() { # NAME...: opens the memory that a has shared, each once
	local name
	for name; do
		expect ok "$name" open
		expect ok "$name" close
	done
}

@test "an importer is charged once the creator has been killed, until it closes the memory" {
	start_all
	start_servers 64 a b
	expect ok a share 10
	opened_by b
	charged a 10
	charged b 0 10
	kill_server a
	charged b 10
	expect "10 of 64" b used
	expect ok b alloc 54
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 1
	expect ok b close
	charged b 54
	expect "54 of 64" b used
	expect ok b alloc 10
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 1
}

@test "of two importers one is charged, and then the other" {
	local first=b second=c charged_now
	start_all
	start_servers 64 a b c
	expect ok a share 10
	opened_by b c
	kill_server a
	eventually used_is 10 64 b
	charged_now=$(eventually gets "[t['pid'] for t in d['tenants'] if t['pid'] != $pid_a and t['mem_used'] == 10 << 20][0]" gbpf ps)
	[ "$charged_now" = "$pid_b" ] || first=c second=b
	charged "$second" 0 10
	expect ok "$first" close
	expect "10 of 64" "$second" used # at every moment
	charged "$second" 10
	charged "$first" 0
	expect "10 of 64" "$first" used
	expect ok "$second" close
	expect "0 of 64" "$first" used
	charged "$second" 0
}

@test "an importer that is killed passes the charge on" {
	start_all
	start_servers 64 a b c
	expect ok a share 10
	opened_by b c
	kill_server a
	charged b 10
	kill_server b
	charged c 10
	expect "10 of 64" c used
	kill_server c
	start_servers 64 d
	expect ok d alloc 64
}

@test "an importer in another virtual GPU is charged, also beyond its limit, which admits nothing more" {
	start_all
	start_servers 64 a
	start_servers 16 b
	expect ok a share 20
	opened_by b
	charged b 0 20
	expect ok b alloc 2
	kill_server a
	charged b 22
	expect "16 of 16" b used # all that the program can see of it
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 1
	expect ok b free
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 1
	expect ok b close
	expect ok b alloc 16
}

@test "an import for which the account has no room succeeds and is shown as shared" {
	start_all
	start_servers 64 a b
	expect ok a share 10
	expect ok a share-many 4096
	opened_by b
	charged b 0 10
	kill_server a
	eventually used_is 0 64 b # the import was not noted
	charged b 0 10
	expect ok b close
	charged b 0
	start_servers 64 c # there is room again
	expect ok c share 10
	opened_by b
	kill_server c
	charged b 10
}

@test "virtual memory is charged to the importer of its descriptor" {
	start_all
	start_servers 64 a b
	expect ok a share-chunk 6
	expect ok b open-chunk 6
	charged b 0 6
	kill_server a
	charged b 6
	expect "6 of 64" b used
	expect ok b close-chunk 6
	charged b 0
	expect "0 of 64" b used
}

@test "memory of a pool is charged to the importer of a pointer" {
	start_all
	start_servers 128 a b
	expect ok a share-pool 10
	expect ok b open-pool
	charged b 0 10
	kill_server a
	charged b 10
	expect "10 of 128" b used
	expect ok b free-imported
	charged b 0
	expect "0 of 128" b used
}

@test "memory that its creator frees is charged to the importer" {
	GBPF_PATIENCE=1 start_all # else it is not charged before processes of an earlier gbpfd may have come
	start_servers 64 a b
	expect ok a share 10
	opened_by b
	expect ok a free-shared
	charged b 10
	charged a 0
	expect "10 of 64" a used
	expect ok b close
	expect "0 of 64" a used
}

@test "a creator that is killed while gbpfd is away is found by the next one" {
	start_all
	start_servers 64 a b
	expect ok a share 10
	opened_by b
	kill_daemon
	kill_server a
	start_daemon
	daemon=${pids[-1]}
	charged b 10
	expect "10 of 64" b used
	kill_daemon
	start_daemon
	charged b 10
	expect "10 of 64" b used
	expect ok b close
	expect "0 of 64" b used
}

@test "memory of a process in no virtual GPU is charged to its importer" {
	GBPF_PATIENCE=1 start_all # likewise
	start_servers_with "" a
	start_servers 64 b
	expect ok a share 10
	opened_by b
	charged b 10 # ten seconds after gbpfd has started
	expect "10 of 64" b used
	kill_server a
	expect ok b close
	charged b 0
}

@test "killed creators, importers and daemons leave the figures right" {
	local i
	start_all
	start_servers 64 keeper a0 b0 a1 b1 a2 b2 a3 b3 a4 b4 a5 b5
	expect ok keeper alloc 8
	for i in {0..5}; do
		expect ok "a$i" share 10
		opened_by "b$i"
		case $((i % 3)) in
		0) kill_daemon && kill_server "a$i" && restart_daemon ;;
		1) kill_server "a$i" && kill_daemon && restart_daemon ;;
		2) kill_server "a$i" ;;
		esac
		charged "b$i" 10
		expect "18 of 64" keeper used
		charged keeper 8
		kill_server "b$i"
		eventually used_is 8 64 keeper
	done
}
