#!/usr/bin/env bats
# Variables of modules and libraries in virtual GPUs: charged before the driver is called.

load helpers
load vgpu_helpers

LOADS=${GBPF_BUILD:-build}/tests/system/vgpu_loads

loads() { # MIB CASE...: in a vGPU with that limit
	run gbpf run --device soft --mem "$1M" -- timeout 200 "$LOADS" "${@:2}"
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "variables beyond the limit are refused after many modules, and reserved memory stays free" {
	start_all
	start_servers_with "--mem 96M" small # the size of the device is known from now on
	gbpf vgpu create kept --mem 900M --reserve 800M
	loads 96 attack 900
	start_servers_with "--vgpu kept" kept
	expect ok kept alloc 800
}

@test "a module is charged for its variables until it is unloaded or its context ends" {
	start_soft --context-memory 24M
	start_daemon
	loads 96 modules
}

@test "variables that share units are charged by their sum" {
	start_all
	loads 96 small
}

@test "a library is charged in each context, and refused where it does not fit" {
	start_soft --context-memory 24M
	start_daemon
	loads 200 libraries
}

@test "threads that load libraries and make contexts leave nothing behind" {
	start_all
	loads 400 threads
}

@test "gbpf ps shows variables as memory that is not overhead, and a killed process gives them back" {
	start_all
	start_servers 64 a b
	expect ok a load 20
	eventually tenant "$pid_a" 't["mem_used"] == 20 << 20 and t["mem_overhead"] == 0'
	expect CUDA_ERROR_OUT_OF_MEMORY b load 46
	expect "20 of 64" b used
	kill -9 "$pid_a"
	returned() { expect "0 of 64" b used; }
	eventually returned 2>/dev/null
	expect ok b load 64
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 2
}

@test "without NVML variables of any size are charged" {
	start_all
	mkdir "$GBPF_RUNTIME_DIR/alone"
	cp "$GBPF_PREFIX/lib/gbpf/soft/libcuda.so.1" "$GBPF_RUNTIME_DIR/alone"
	export GBPF_REAL_CUDA="$GBPF_RUNTIME_DIR/alone/libcuda.so.1"
	run gbpf run --mem 800M -- "$VGPU" serve <<<$'load 700\nused\nalloc 102\nalloc 100' 2>/dev/null
	echo "$output"
	[ "$(tail -4 <<<"$output" | paste -sd,)" = "ok,700 of 800,CUDA_ERROR_OUT_OF_MEMORY,ok" ]
}
