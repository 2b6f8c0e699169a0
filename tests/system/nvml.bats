#!/usr/bin/env bats
# libnvidia-ml.so.1 in virtual GPUs: it agrees with CUDA, shows the processes of the vGPU alone, and forwards everything else.

load helpers
load vgpu_helpers

NVML=$(realpath "${GBPF_BUILD:-build}/tests/system/nvml")
OWN=$GBPF_PREFIX/lib/gbpf/shim/libnvidia-ml.so.1
VGPU=$NVML # the program that start_servers starts

begin() { # MIB NAME...: programs in one vGPU that have initialized CUDA
	start_all
	start_servers "$@"
	local name
	for name in "${@:2}"; do
		expect ok "$name" init
	done
}

# in_no_vgpu NAME: a program under gBPF without a limit.
in_no_vgpu() {
	start_servers_with "" "$1"
}

# with CHANGE MIB NAME...: programs in a vGPU, in an environment that env has changed.
with() {
	VGPU="env' '${1// /"' '"}' '$NVML" start_servers "${@:2}" # the helper quotes the name
}

limited() { # MIB COMMAND...
	gbpf run --device soft --mem "$1M" -- "${@:2}"
}

@test "NVML has CUDA's figures in each process of a vGPU" {
	begin 64 a b
	expect "0 used, 64 free of 64" a memory
	expect ok a alloc 20
	expect ok a agree
	expect ok b agree
	expect "20 used, 44 free of 64" b memory
	expect ok b alloc 30
	expect "50 used, 14 free of 64" a memory
	expect ok a agree
	expect ok b agree
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 15
	expect ok a free
	expect "30 used, 34 free of 64" b memory
	expect ok b agree
}

@test "NVML agrees with CUDA at every moment while another process allocates" {
	local i
	begin 512 a b
	echo watch >&"$in_a"
	for ((i = 0; i < 256; i++)); do
		expect ok b alloc 2
	done
	answer_of a
	[ "$REPLY" = ok ]
}

@test "NVML agrees with CUDA after memory was freed in stream order" {
	begin 64 a
	expect ok a alloc 20
	expect ok a alloc 10
	expect ok a drop
	expect ok a agree
	expect "20 used, 44 free of 64" a memory
}

@test "NVML shows not more free memory than the device has" {
	begin 600 a
	start_servers 600 b
	expect ok b init
	expect ok b alloc 600
	ask a memory
	[[ "$REPLY" == "0 used, "*" free of 600" ]]
	REPLY=${REPLY#*, }
	[ "${REPLY%% *}" -le 424 ]
	expect ok a agree
}

@test "before cuInit NVML has the vGPU's figures, and the process is no tenant" {
	begin 64 a
	expect ok a alloc 40
	# in another vGPU: b does not initialize CUDA at first, c does
	start_servers 64 b c
	expect "0 used, 64 free of 64" b memory
	expect "" b processes
	expect ok c init
	expect ok c alloc 10
	expect "10 used, 54 free of 64" b memory
	expect "$pid_c:10" b processes
	expect "40 used, 24 free of 64" a memory
	eventually shows "{t['pid'] for t in d['tenants']} == {$pid_a, $pid_c}" gbpf ps
	expect ok b init
	expect "10 used, 54 free of 64" b memory
	expect ok b agree
}

@test "lists of processes contain those of the vGPU, with the account's memory" {
	begin 64 a b
	start_servers 48 c d
	expect ok c init
	in_no_vgpu e
	expect ok e init
	expect ok a alloc 10
	expect ok b alloc 20
	expect ok c alloc 30
	expect ok e alloc 40
	both=$(printf '%s\n' "$pid_a:10" "$pid_b:20" | sort -n | paste -sd' ')
	expect "$both" a processes
	expect "$both" b processes
	expect "$pid_c:30" c processes
	expect "$pid_c:30" d processes
	expect "$(printf '%s\n' "$pid_a:10" "$pid_b:20" "$pid_c:30" "$pid_e:40" | sort -n | paste -sd' ')" e processes
	expect "100 used, 924 free of 1024" e memory
}

@test "the memory of a process is what the account has, not what the driver has" {
	begin 64 a
	expect ok a tiny # of a block of 2 MiB
	expect "$pid_a:2" a processes
	in_no_vgpu b
	expect "$pid_a:0" b processes
}

@test "NVML has the limits of a vGPU with a name, which only gbpfd knows" {
	start_all
	gbpf vgpu create one --mem 64M
	start_servers_with "--vgpu one" a b
	expect "0 used, 64 free of 64" a memory
	expect ok b init
	expect ok b alloc 20
	expect "20 used, 44 free of 64" a memory
	expect "$pid_b:20" a processes
	gbpf vgpu set one --mem 96M
	expect "20 used, 76 free of 96" a memory
	expect "20 used, 76 free of 96" b memory
	expect ok b agree
	kill_daemon
	expect "error 4" a memory
	expect "20 used, 76 free of 96" b memory
}

@test "NVML and CUDA show a device that is larger by swap" {
	start_all
	gbpf vgpu create one --mem 64M --swap 32M
	start_servers_with "--vgpu one" a b
	expect "0 used, 96 free of 96" a memory
	expect ok b init
	expect ok b alloc 20
	expect "20 used, 76 free of 96" a memory
	expect "20 used, 76 free of 96" b memory
	expect ok b agree
	gbpf vgpu set one --swap 64M
	expect "20 used, 108 free of 128" a memory
	expect ok b agree
	gbpf vgpu set one --swap none
	expect "20 used, 44 free of 64" a memory
	expect ok b agree
	start_servers_with "--mem 64M --swap 32M" c
	expect "0 used, 96 free of 96" c memory
	kill_daemon
	expect "0 used, 96 free of 96" c memory # from the environment
}

@test "NVML and CUDA show the limit alone, and programs hold more" {
	start_all
	gbpf vgpu create one --mem 64M --swap 64M --show mem
	start_servers_with "--vgpu one" a b
	expect "0 used, 64 free of 64" a memory
	expect ok b init
	expect ok b agree
	expect ok b alloc 40
	expect "40 used, 24 free of 64" a memory
	expect "40 used, 24 free of 64" b memory
	expect ok b agree
	expect ok b alloc 40
	expect "64 used, 0 free of 64" a memory
	expect "64 used, 0 free of 64" b memory
	expect ok b agree
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 60
	gbpf vgpu set one --show all
	expect "80 used, 48 free of 128" b memory
	expect ok b agree
	gbpf vgpu set one --show mem
	expect "64 used, 0 free of 64" a memory
	expect ok b agree
	expect ok b free
	expect "40 used, 24 free of 64" a memory
	expect "40 used, 24 free of 64" b memory
	expect ok b agree
	start_servers_with "--mem 64M --swap 32M --show mem" c
	expect "0 used, 64 free of 64" c memory
	kill_daemon
	expect "0 used, 64 free of 64" c memory # from the environment
	expect "40 used, 24 free of 64" b memory
}

@test "a vGPU that does not exist shows nothing" {
	start_all
	GBPF_VGPU=none run gbpf run --device soft -- "$NVML" serve < <(printf '%s\n' memory rates)
	echo "$output"
	[ "${lines[1]}" = "error 4" ]
	[ "${lines[2]}" = "error 4" ]
}

@test "utilization is that of the vGPU's processes" {
	begin 64 a
	limited 64 "$SAMPLES/batch" --kernel-us 1000 --blocks 64 >"$GBPF_RUNTIME_DIR/batch.out" 2>&1 3>&- &
	pids+=($!)
	in_no_vgpu b
	is() { ask "$2" "$3" && [ "$REPLY" = "$1" ]; }
	eventually is busy b rates
	expect "$pid_a" a samples
	expect idle a rates
	ask b samples
	[ "$(wc -w <<<"$REPLY")" -eq 2 ]
}

@test "a busy vGPU is shown as such" {
	start_all
	mkfifo "$GBPF_RUNTIME_DIR/a.in" "$GBPF_RUNTIME_DIR/a.out"
	limited 64 bash -c "'$SAMPLES/batch' --kernel-us 1000 --blocks 64 & '$NVML' serve <'$GBPF_RUNTIME_DIR/a.in' >'$GBPF_RUNTIME_DIR/a.out'; kill \$!; wait" \
		>"$GBPF_RUNTIME_DIR/batch.out" 2>&1 3>&- &
	pids+=($!)
	exec {in_a}<>"$GBPF_RUNTIME_DIR/a.in" {out_a}<>"$GBPF_RUNTIME_DIR/a.out"
	answer_of a
	is() { ask "$2" "$3" && [ "$REPLY" = "$1" ]; }
	eventually is busy a rates
	exec {in_a}>&-
}

@test "invalid arguments get the errors of the driver's library" {
	begin 64 a
	expect ok a errors
	in_no_vgpu b
	expect ok b errors
}

@test "a forked child has the vGPU's figures" {
	begin 64 a b
	expect ok a alloc 10
	expect ok b alloc 10
	expect "20 used, 44 free of 64" a fork
}

@test "a program in no vGPU, and one with GBPF_OFF=1, see the whole device" {
	begin 64 a
	expect ok a alloc 10
	in_no_vgpu b
	expect "10 used, 1014 free of 1024" b memory
	expect "$pid_a:10" b processes
	with GBPF_OFF=1 64 c
	expect "10 used, 1014 free of 1024" c memory
	expect "$pid_a:10" c processes
}

@test "a vGPU that has ended and begun again has no figures of the first one" {
	local dir=$GBPF_RUNTIME_DIR
	start_all
	mkfifo "$dir"/{a,b,c}.{in,out} "$dir/go"
	limited 64 bash -c "cd '$dir'; '$NVML' serve <a.in >a.out & '$NVML' serve <b.in >b.out; read <go; exec '$NVML' serve <c.in >c.out" \
		>>"$dir/servers.log" 2>&1 3>&- &
	pids+=($!)
	exec {in_a}<>"$dir/a.in" {out_a}<>"$dir/a.out" {in_b}<>"$dir/b.in" {out_b}<>"$dir/b.out" {in_c}<>"$dir/c.in" {out_c}<>"$dir/c.out"
	answer_of a
	pids+=("$REPLY")
	answer_of b
	pid_b=$REPLY
	expect ok b init
	expect ok b alloc 40
	expect "40 used, 24 free of 64" a memory
	kill -9 "$pid_b"
	ended() { expect "0 used, 64 free of 64" a memory && expect "" a processes; }
	eventually ended 2>/dev/null
	echo >"$dir/go"
	answer_of c
	expect ok c init
	expect ok c alloc 10
	expect "10 used, 54 free of 64" a memory
}

@test "without gbpfd a process that has not initialized CUDA sees the limit, another one the account" {
	begin 64 a
	start_servers 64 b
	expect ok a alloc 10
	kill_daemon
	expect "10 used, 54 free of 64" a memory
	expect "$pid_a:10" a processes
	expect "0 used, 64 free of 64" b memory
	expect "" b processes
}

@test "a gbpfd that does not answer delays a call by seconds at most" {
	begin 64 a
	GBPF_PATIENCE=1 start_servers 64 b
	kill -STOP "$daemon"
	SECONDS=0
	expect "0 used, 64 free of 64" b memory
	[ "$SECONDS" -lt 60 ]
	expect "0 used, 64 free of 64" a memory
	kill -CONT "$daemon"
}

@test "after a restart of gbpfd a look waits for the account" {
	local dir=$GBPF_RUNTIME_DIR since
	begin 64 a b
	expect ok a alloc 40
	mkfifo "$dir/c.in" "$dir/c.out"
	kill -STOP "$pid_a" "$pid_b"
	kill_daemon
	start_daemon
	daemon=${pids[-1]}
	# in the same vGPU, whose environment is that of a
	env $(tr '\0' '\n' <"/proc/$pid_a/environ" | grep -E '^(GBPF_|LD_)') GBPF_PATIENCE=1 "$NVML" serve <"$dir/c.in" >"$dir/c.out" 2>>"$dir/servers.log" 3>&- &
	pids+=($!)
	exec {in_c}<>"$dir/c.in" {out_c}<>"$dir/c.out"
	answer_of c
	since=${EPOCHREALTIME/./}
	expect "0 used, 64 free of 64" c memory # none can bring the account, for a second
	[ $((${EPOCHREALTIME/./} - since)) -ge 900000 ]
	kill -CONT "$pid_a" "$pid_b"
	is() { ask "$2" "$3" && [ "$REPLY" = "$1" ]; }
	eventually is "40 used, 24 free of 64" c memory
	expect "40 used, 24 free of 64" b memory
}

@test "a GBPF_VGPU that is none keeps a program from NVML's figures" {
	local value
	start_all
	for value in garbage: 0:1:mem=67108864 1: :: 1:1:mem=1 1:1:mem=-1 1:1:mem=99999999999999999999 "$(printf 'x%.0s' {1..4000})"; do
		GBPF_VGPU=$value run gbpf run --device soft -- "$NVML" serve < <(printf '%s\n' memory rates samples)
		echo "$output"
		[ "$status" -eq 0 ]
		[ "${lines[1]}" = "error 4" ]
		[ "${lines[2]}" = "error 4" ]
		[ "${lines[3]}" = "error 4" ]
	done
}

@test "NVML finds the shim in its own folder if it is not preloaded" {
	begin 64 a
	expect ok a alloc 10
	with "-u LD_PRELOAD" 64 b
	expect "0 used, 64 free of 64" b memory
}

# The list of names against NVIDIA's own library, which the build machine need not have.
@test "every function of the machine's libnvidia-ml.so.1 is exported" {
	local real=${GBPF_TEST_NVML:-} folder
	for folder in /usr/local/nvidia/lib64 /usr/lib/x86_64-linux-gnu /usr/lib64; do
		[ -n "$real" ] || [ ! -e "$folder/libnvidia-ml.so.1" ] || real=$folder/libnvidia-ml.so.1
	done
	[ -n "$real" ] || skip "there is no libnvidia-ml.so.1 (GBPF_TEST_NVML may name one)"
	names() { nm -D --defined-only "$1" | awk '$3 ~ /^nvml/ { print $3 }' | sort; }
	[ "$(names "$real" | wc -l)" -gt 0 ]
	run comm -23 <(names "$real") <(names "$OWN")
	echo "$output"
	[ -z "$output" ]
}
