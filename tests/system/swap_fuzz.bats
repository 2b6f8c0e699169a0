#!/usr/bin/env bats
# Random operations on memory that can leave the device, at about twice the limit, against a model (swap_fuzz.c). Long by hand:
#   GBPF_FUZZ_STEPS=20000 GBPF_FUZZ_SEED=7 bats tests/system/swap_fuzz.bats

load helpers
load vgpu_helpers

FUZZ=${GBPF_BUILD:-build}/tests/system/swap_fuzz
STEPS=${GBPF_FUZZ_STEPS:-200}
SEED=${GBPF_FUZZ_SEED:-1}

# fuzz ARGUMENT...: in a vGPU, of which a server keeps the account, so that it is read when the programs have ended.
fuzz() {
	start_all
	gbpf vgpu create fuzz --mem 96M --swap 512M
	start_servers_with "--vgpu fuzz" keeper
	run timeout $((STEPS + 300)) gbpf run --vgpu fuzz -- "$FUZZ" "$SEED" "$STEPS" "$@" 3>&-
	echo "$output"
	[ "$status" -eq 0 ]
	eventually shows 'd["processes"] == 1 and d["swap_used"] == 0 and [g["mem_used"] for g in d["devices"]] == [0]' \
		gbpf vgpu show fuzz
	expect "0 of 608" keeper used
}

@test "threads at up to twice their limit: memory equals the model" {
	fuzz 192
}

@test "a process is killed at random steps again and again: the memory of another one equals its model" {
	fuzz 96 10
}
