#!/usr/bin/env bats
# A short run of kills and stops at named points; the full run is `tools/point-test` (5 s per stop).

load helpers

build() {
	BUILD=${GBPF_BUILD:-build}
	[ -x "$BUILD/tests/system/gbpfd-points" ] || skip "$BUILD has no gbpfd-points"
}

@test "at least thirty points are named, and point-test knows what passes each" {
	run tools/point-test --list
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -ge 60 ]
	[ "$(grep -c '^\(map\|ring\)\.' <<<"$output")" -ge 14 ]
}

@test "gbpfd killed or stopped in the middle of a swap leaves one whole version" {
	build
	run timeout 600 tools/point-test --build "$BUILD" --stop 0.1 --only '^daemon\.(load|store|state|swap|ready|drop|exit)\.'
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "gbpfd killed or stopped while it attaches or detaches a tool leaves none" {
	build
	run timeout 600 tools/point-test --build "$BUILD" --stop 0.1 --only '^daemon\.probe\.'
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "killed or stopped while sessions come and go, all other tenants go on" {
	build
	run timeout 600 tools/point-test --build "$BUILD" --stop 0.1 --only '^(shim|sched|daemon\.(hello|session|reattach|death|obituary))\.'
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "killed or stopped in the middle of a map's update, nothing is torn" {
	build
	run timeout 600 tools/point-test --build "$BUILD" --stop 0.1 --only '^(map|ring)\.'
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "a hundred random moments" {
	build
	run timeout 600 tools/point-test --build "$BUILD" --stop 0.3 --only none --random 100 --seed 5
	echo "$output"
	[ "$status" -eq 0 ]
}
