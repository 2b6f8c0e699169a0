#!/usr/bin/env bats
# Programs that use more memory than their limit: what does not fit lies on the host, and results are those without a limit.

load helpers
load vgpu_helpers

SWAPPING=${GBPF_BUILD:-build}/tests/system/swapping
HANDLE_ANSWERS=${GBPF_BUILD:-build}/tests/system/handle_answers

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
	start_soft --gpus "${gpus:-1}"
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

@test "memory of cuMemCreate leaves the device as that of cuMemAlloc does" {
	same_at 64M 256M --handles 8 14 12
}

@test "threads map and unmap memory of cuMemCreate while memory leaves" {
	same_at 64M 256M --handles 24 5 6 4
}

@test "a handle for more memory than the limit lies on the host in part" {
	same_at 48M 256M --handles 2 60 3
}

@test "threads at twice their limit have the results that they have without one" {
	same_at 64M 256M 24 5 6 4
}

@test "memory of pools at twice the limit has the results that it has without one" {
	same_at 64M 256M --async 8 14 24
}

@test "threads that use pools at twice their limit have the results that they have without one" {
	same_at 64M 256M --async 24 5 12 4
}

@test "a program on two GPUs at twice its limit on each has the results that it has without one" {
	gpus=2 same_at 64M 512M --gpus 2 8 14 12
}

@test "threads on two GPUs at twice their limit have the results that they have without one" {
	gpus=2 same_at 64M 512M --gpus 2 24 5 6 4
}

# In each mode, of streams that are ordered with the default one of their GPU and of others, as without a limit.
@test "a capture outlives copies of its GPU's memory that are made with another GPU current" {
	start_soft --gpus 2
	start_daemon
	cat >"$GBPF_RUNTIME_DIR/capture.py" <<-'PY'
		import ctypes
		cuda, c, s, g = ctypes.CDLL("libcuda.so.1"), [ctypes.c_void_p(), ctypes.c_void_p()], ctypes.c_void_p(), ctypes.c_void_p()
		p, q, n, host = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t(4 << 20), ctypes.create_string_buffer(4 << 20)
		calls = [cuda.cuInit(0), *(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(c[i]), i) for i in range(2)), cuda.cuCtxSetCurrent(c[1])]
		calls += [cuda.cuMemAlloc_v2(ctypes.byref(p), n), cuda.cuMemsetD8_v2(p, 7, n), cuda.cuCtxSynchronize()]
		calls += [cuda.cuCtxSetCurrent(c[0]), cuda.cuMemAlloc_v2(ctypes.byref(q), n)]
		for mode, flags in [(m, f) for m in range(3) for f in range(2)]: calls += [
			cuda.cuCtxSetCurrent(c[1]), cuda.cuStreamCreate(ctypes.byref(s), flags), cuda.cuStreamBeginCapture_v2(s, mode),
			cuda.cuCtxSetCurrent(c[0]), cuda.cuMemcpyDtoH_v2(host, p, n), cuda.cuMemcpyHtoD_v2(p, host, n),
			cuda.cuMemcpyDtoD_v2(q, p, n), cuda.cuMemcpy(p, q, n),
			cuda.cuMemsetD8Async(p, 7, n, s), cuda.cuStreamEndCapture(s, ctypes.byref(g)), host.raw != b"\7" * n.value]
		print([int(call) for call in calls])
	PY
	for options in "" "--mem 64M --swap 64M"; do
		# shellcheck disable=SC2086 # words
		run --separate-stderr timeout 120 gbpf run --device soft $options -- python3 "$GBPF_RUNTIME_DIR/capture.py"
		echo "$options: $output $stderr"
		[ "$output" = "[$(printf '0, %.0s' {1..74})0]" ]
	done
}

@test "memory of cuMemCreate leaves two GPUs" {
	gpus=2 same_at 64M 512M --handles --gpus 2 8 14 12
}

@test "memory of pools leaves two GPUs" {
	gpus=2 same_at 64M 512M --async --gpus 2 8 14 12
}

@test "thousands of small allocations at twice the limit have the results that they have without one" {
	same_at 64M 256M --kib 3000 42 200
}

@test "threads with small allocations at twice their limit have the results that they have without one" {
	same_at 64M 256M --kib 3000 42 60 4
}

@test "small allocations leave two GPUs" {
	gpus=2 same_at 32M 256M --kib --gpus 2 1500 42 60
}

@test "small allocations fill the last 2 MiB of limit and swap" {
	start_all
	start_servers_with "--mem 64M --swap 64M" a
	expect ok a alloc 126
	expect ok a take-linear-1000
	expect "128 of 128" a used
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 2
	expect ok a take-linear-1000 # next to the first one
	expect "128 of 128" a used
	expect ok a free
	expect ok a alloc 126
}

@test "buffers that are larger than the limit lie on the host in part" {
	same_at 48M 256M 2 60 3
}

# gbpfd then grants memory of the host, and has to be asked for whole chunks where the limit has room for a part of one.
@test "buffers lie on the host where the limit has room for a part of one, next to another virtual GPU" {
	start_soft
	start_daemon
	gbpf vgpu create other
	cat >"$GBPF_RUNTIME_DIR/buffers.py" <<-'PY'
		import ctypes
		cuda, p = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
		calls = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(p), 0), cuda.cuCtxSetCurrent(p)]
		calls += [cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(n)) for n in [8192] + 22 * [10 << 20]]
		print(calls)
	PY
	run --separate-stderr gbpf run --device soft --mem 130M --swap 230M -- python3 "$GBPF_RUNTIME_DIR/buffers.py"
	echo "$output $stderr"
	[ "$output" = "[$(printf '0, %.0s' {1..25})0]" ]
}

@test "memory of cuMemCreate that can leave the device has all answers of the driver" {
	start_soft
	start_daemon
	timeout 200 gbpf run --device soft --mem 1G -- "$HANDLE_ANSWERS" >"$GBPF_RUNTIME_DIR/without"
	timeout 200 gbpf run --device soft --mem 112M --swap 256M -- "$HANDLE_ANSWERS" >"$GBPF_RUNTIME_DIR/with"
	diff "$GBPF_RUNTIME_DIR/without" "$GBPF_RUNTIME_DIR/with"
}

@test "a new handle is exported without room for a copy, and charged once" {
	start_soft
	start_daemon
	run timeout 200 gbpf run --device soft --mem 64M --swap 64M -- "$HANDLE_ANSWERS" --new
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$output" = "export(first): 0" ]
}

@test "a handle that cannot be exported now keeps its contents, and can be later" {
	start_soft
	start_daemon
	run timeout 200 gbpf run --device soft --mem 32M --swap 256M -- "$HANDLE_ANSWERS" --refused
	echo "$output"
	[ "$status" -eq 0 ]
	# No memory, mapped or not; work that goes on; and none.
	[ "$(grep -o '[0-9]*$' <<<"$output" | tr '\n' ' ')" = "2 2 600 0 " ]
}

@test "managed memory at twice the limit has the results that it has without one" {
	same_at 64M 256M --managed 8 14 12
}

@test "threads that use managed memory at twice their limit have the results that they have without one" {
	same_at 64M 256M --managed 24 5 12 4
}

@test "without swap the same program is refused" {
	start_soft
	start_daemon
	run timeout 120 gbpf run --device soft --mem 64M -- "$SWAPPING" 8 14 1
	echo "$output"
	[ "$status" -ne 0 ]
	[[ $output == *cuMemAlloc* ]]
}

@test "memory of the host is made before anything leaves, and given back under pressure" {
	start_all
	machine proc/pressure/memory 'some avg10=0.00 avg60=0.00 avg300=0.00 total=0'
	start_on_machine "--mem 96M --swap 64M" a
	expect ok a alloc 32
	expect "32 of 160" a used
	expect ok a alloc 48
	eventually tenant "$pid_a" 't["swap_used"] == t["pinned_used"] == 32 << 20' # half of it
	expect "80 of 160" a used
	machine proc/pressure/memory 'some avg10=60.00 avg60=0.00 avg300=0.00 total=0'
	eventually tenant "$pid_a" 't["swap_used"] == t["pinned_used"] == 0'
	expect ok a alloc 80 # what leaves gets memory when it is needed
	expect "160 of 160" a used
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 2
}

@test "what is made ahead keeps nothing from the program" {
	start_all
	machine proc/pressure/memory 'some avg10=0.00 avg60=0.00 avg300=0.00 total=0'
	start_on_machine "--mem 96M --swap 64M" a
	for _ in {1..10}; do
		expect ok a alloc 8 # less than the pieces that are made
	done
	eventually tenant "$pid_a" 't["swap_used"] == 32 << 20'
	for _ in {1..10}; do
		expect ok a alloc 8
	done
	expect "160 of 160" a used
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 2
}

@test "memory of the host that is kept for chunks makes room for chunks of another size" {
	start_all
	start_servers_with "--mem 64M --swap 64M" a
	expect ok a alloc 64
	expect ok a alloc 64 # chunks of 16 MiB fill the host
	expect ok a free
	expect ok a free
	for _ in {1..12}; do
		expect ok a alloc 10
	done
	expect "120 of 128" a used
}
