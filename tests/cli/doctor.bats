# gbpf doctor: findings with a fix each; a broken library is a finding, not a crash.
load helper

@test "all is well on the soft GPU" {
	run "$GBPF" doctor --device soft
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"✓ shim"* ]]
	[[ "$output" == *"✓ soft GPU"* ]]
	[[ "$output" == *"✓ runtime directory"* ]]
	[[ "$output" == *"guarded against faults, not malice"* ]]
	[[ "$output" != *"✗"* ]]
}

@test "JSON says the same" {
	run "$GBPF" --json doctor --device soft
	[ "$status" -eq 0 ]
	json 'd["schema"] == "gbpf.doctor/1" and d["ok"] and all(c["status"] in ("ok", "note") for c in d["checks"])'
}

@test "the cache of machine code is shown" {
	unset GBPF_CACHE
	export GBPF_CACHE_DIR=$PWD/cache
	run "$GBPF" doctor --device soft
	[[ "$output" == *"machine-code cache: $PWD/cache: made when"* ]]
	mkdir -m 700 cache
	head -c 2048 /dev/zero >cache/0.image
	echo "5 hits, 1 misses" >cache/lock
	GBPF_CACHE_MB=2 run "$GBPF" doctor --device soft
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"✓ machine-code cache: $PWD/cache: 1 image, 2.00 KiB of 2.00 MiB, 5 hits, 1 miss; rm -r clears it"* ]]
	chmod 770 cache
	run "$GBPF" doctor --device soft
	[ "$status" -eq 0 ]
	[[ "$output" == *"$PWD/cache is refused: $PWD/cache is writable by its group"* ]]
	GBPF_CACHE=off run "$GBPF" doctor --device soft
	[[ "$output" == *"machine-code cache: switched off"* ]]
	GBPF_CACHE_MB=5x run "$GBPF" doctor --device soft
	[ "$status" -eq 1 ]
	[[ "$output" == *"✗ machine-code cache: off: invalid GBPF_CACHE_MB '5x'"* ]]
	GBPF_CACHE_DIR=cache run "$GBPF" doctor --device soft
	[ "$status" -eq 1 ]
	[[ "$output" == *"✗ machine-code cache: off: the path of its folder is relative"* ]]
}

@test "a missing installation is found" {
	GBPF_LIBDIR=/nonexistent run "$GBPF" doctor --device soft
	[ "$status" -eq 1 ]
	[[ "$output" == *"✗ shim: missing: /nonexistent/shim/libcuda.so.1"* ]]
	[[ "$output" == *"GBPF_LIBDIR"* ]]
}

@test "--device nvidia without a driver is a fault with a fix" {
	[ ! -e /dev/nvidiactl ] || skip "this machine has an NVIDIA GPU"
	run "$GBPF" --json doctor --device nvidia
	[ "$status" -eq 1 ]
	json 'not d["ok"] and all(c["fix"] for c in d["checks"] if c["status"] == "bad")'
	json 'any(c["name"] == "NVIDIA libcuda" and c["status"] == "bad" for c in d["checks"])'
}

library() { gcc -shared -fPIC -xc - -o "$1" <<<"$2"; }

@test "a library that crashes is a finding" {
	library crash.so 'int cuInit(unsigned f) { *(volatile int *)0 = 1; return 0; } int cuDeviceGetCount(int *n) { return 0; }
		int cuDriverGetVersion(int *v) { return 0; } int cuDeviceGetName(char *o, int n, int d) { return 0; }'
	GBPF_REAL_CUDA=$PWD/crash.so run "$GBPF" doctor
	[ "$status" -eq 1 ]
	[[ "$output" == *"crashed"* ]]
}

@test "a library that is no libcuda, and one that finds no device" {
	library other.so 'int other;'
	GBPF_REAL_CUDA=$PWD/other.so run "$GBPF" doctor
	[ "$status" -eq 1 ]
	[[ "$output" == *"is no libcuda"* ]]
	library none.so 'int cuInit(unsigned f) { return 100; } int cuDeviceGetCount(int *n) { return 0; }
		int cuDriverGetVersion(int *v) { return 0; } int cuDeviceGetName(char *o, int n, int d) { return 0; }'
	GBPF_REAL_CUDA=$PWD/none.so run "$GBPF" doctor
	[ "$status" -eq 1 ]
	[[ "$output" == *"100 (no device)"* ]]
	GBPF_REAL_CUDA=/nonexistent.so run "$GBPF" doctor
	[ "$status" -eq 1 ]
	[[ "$output" == *"GBPF_REAL_CUDA: /nonexistent.so: No such file or directory"*"Unset it"* ]]
}

@test "a look at the soft GPU leaves nothing behind either" {
	rmdir "$GBPF_RUNTIME_DIR" "$GBPF_STATE_DIR"
	run "$GBPF" doctor --device soft
	[ "$status" -eq 0 ]
	[ ! -e "$GBPF_RUNTIME_DIR" ]
	[ ! -e "$GBPF_STATE_DIR" ]
}

@test "a runtime directory that is not ours is found" {
	chmod 777 "$GBPF_RUNTIME_DIR"
	run "$GBPF" doctor --device soft
	[ "$status" -eq 1 ]
	[[ "$output" == *"✗ runtime directory"* ]]
	[[ "$output" == *"GBPF_RUNTIME_DIR"* ]]
}

@test "a state directory that gbpfd makes inside the runtime directory is no fault" {
	rm -rf "$GBPF_RUNTIME_DIR"
	GBPF_STATE_DIR="$GBPF_RUNTIME_DIR/state" run "$GBPF" doctor --device soft
	echo "$output"
	[ "$status" -eq 0 ]
	[ ! -e "$GBPF_RUNTIME_DIR" ]
	GBPF_STATE_DIR="$cli_dir/none/state" run "$GBPF" doctor --device soft
	[ "$status" -eq 1 ]
	[[ "$output" == *"state directory: $cli_dir/none/state: No such file"* ]]
}

@test "a full runtime directory is found" {
	[ "$(id -u)" -eq 0 ] || skip "needs root to mount"
	unshare -m true 2>/dev/null || skip "mounting is not permitted here"
	run unshare -m sh -c 'mount -t tmpfs -o size=64k none "$GBPF_RUNTIME_DIR" && chmod 700 "$GBPF_RUNTIME_DIR" &&
		{ head -c 1M /dev/zero >"$GBPF_RUNTIME_DIR/fill" 2>/dev/null; "$0" doctor --device soft; }' "$GBPF"
	[ "$status" -eq 1 ]
	[[ "$output" == *"✗ runtime directory"*"Free space"* ]]
}

@test "a look leaves nothing behind" {
	rmdir "$GBPF_RUNTIME_DIR"
	GBPF_REAL_CUDA=/nonexistent.so run "$GBPF" doctor
	[ ! -e "$GBPF_RUNTIME_DIR" ]
}

@test "the daemon is found when it runs" {
	"$GBPF" run --device soft true
	run "$GBPF" --json doctor --device soft
	json 'any(c["name"] == "daemon" and c["status"] == "ok" for c in d["checks"])'
}

finding() { # NAME STATUS TEXT: in the JSON document
	json "any(c['name'] == 'vGPU $1' and c['status'] == '$2' and '''$3''' in c['text'] for c in d['checks'])"
}

@test "what virtual GPUs can do here is reported" {
	unset GBPF_COPY
	run "$GBPF" --json doctor --device soft
	[ "$status" -eq 0 ]
	finding "figures in NVML" ok /shim/libnvidia-ml.so.1
	finding overhead ok "NVML's figure of each process"
	finding accounts ok "shared memory of fixed size"
	finding "pinned memory" ok "may pin"
	json 'not any(c["name"] in ("vGPU shares", "vGPU rights", "vGPU names") for c in d["checks"])' # without gbpfd
	if [ "$(nproc)" -ge 2 ]; then
		finding copies ok "threads for a copy"
	fi
	run taskset -c "$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')" "$GBPF" --json doctor --device soft
	finding copies note "one core"
	GBPF_COPY=driver run "$GBPF" --json doctor --device soft
	finding copies note GBPF_COPY=driver
}

@test "with gbpfd the shares and rights of virtual GPUs are reported" {
	"$GBPF" run --device soft true
	"$GBPF" policy swap fair
	run "$GBPF" --json doctor --device soft
	finding shares note "policy fair does not read shares"
	finding rights ok "may reserve memory"
	"$GBPF" policy swap vgpu_auto
	"$GBPF" vgpu create train --mem 64M
	run "$GBPF" --json doctor --device soft
	finding shares ok "policy vgpu_auto keeps them"
	finding names ok /vgpus.json
}

@test "a broken installation for virtual GPUs is found" {
	mkdir -p lib/shim "$GBPF_STATE_DIR/vgpus.json"
	cp "$GBPF_PREFIX/lib/gbpf/shim/libcuda.so.1" lib/shim/
	cp -r "$GBPF_PREFIX/lib/gbpf/soft" lib/
	rm lib/soft/libnvidia-ml.so*
	GBPF_LIBDIR=$PWD/lib run "$GBPF" --json doctor --device soft
	[ "$status" -eq 1 ]
	finding "figures in NVML" bad "missing: $PWD/lib/shim/libnvidia-ml.so.1"
	finding overhead note "measured by differences"
	finding names bad "is no file that can be read"
	library lib/shim/libnvidia-ml.so.1 'int other;'
	library lib/soft/libnvidia-ml.so.1 '#include <stdlib.h>
		__attribute__((constructor)) static void crash(void) { abort(); }'
	GBPF_LIBDIR=$PWD/lib run "$GBPF" --json doctor --device soft
	finding "figures in NVML" bad "cannot be loaded"
	finding overhead note "crashed or did not answer when it was tried: overhead is"
	library lib/soft/libnvidia-ml.so.1 'int other;'
	GBPF_LIBDIR=$PWD/lib run "$GBPF" --json doctor --device soft
	finding overhead note "cannot list processes: overhead is"
}
