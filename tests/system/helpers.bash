# A private testbed for each test: runtime and state folders; stops everything at the end.
bats_require_minimum_version 1.5.0

setup() {
	PATH="$GBPF_PREFIX/bin:$PATH"
	export PATH
	GBPF_RUNTIME_DIR=$(mktemp -d "${BATS_TMPDIR:-/tmp}/gbpf-XXXXXX")
	export GBPF_RUNTIME_DIR GBPF_STATE_DIR="$GBPF_RUNTIME_DIR/state" GBPF_CACHE=off
	SAMPLES="$GBPF_PREFIX/lib/gbpf/samples"
	POLICIES="$GBPF_PREFIX/lib/gbpf/policies"
	pids=()
}

source "${BASH_SOURCE[0]%/*}/../wait.bash"

# serves PID SOCKET: true, too, when the process has ended.
serves() { [ -S "$2" ] || ! kill -0 "$1" 2>/dev/null; }

start_daemon() {
	rm -f "$GBPF_RUNTIME_DIR/control.sock" # of a killed one: it is made anew
	gbpfd --foreground --device soft "$@" >"$GBPF_RUNTIME_DIR/gbpfd.log" 2>&1 3>&- &
	pids+=($!)
	eventually serves "${pids[-1]}" "$GBPF_RUNTIME_DIR/control.sock" && [ -S "$GBPF_RUNTIME_DIR/control.sock" ] && return 0
	cat "$GBPF_RUNTIME_DIR/gbpfd.log"
	return 1
}

start_soft() {
	gbpf-softgpu --foreground "$@" >"$GBPF_RUNTIME_DIR/softgpu.log" 2>&1 3>&- &
	pids+=($!)
	eventually serves "${pids[-1]}" "$GBPF_RUNTIME_DIR/softgpu.sock" && [ -S "$GBPF_RUNTIME_DIR/softgpu.sock" ] && return 0
	cat "$GBPF_RUNTIME_DIR/softgpu.log"
	return 1
}

teardown() {
	local p
	for p in "${pids[@]}"; do
		kill "$p" 2>/dev/null || true
	done
	for p in "${pids[@]}"; do
		wait "$p" 2>/dev/null || true
	done
	end_virtual_time
	[ "${BATS_TEST_COMPLETED:-}" ] || tail -n 20 "$GBPF_RUNTIME_DIR"/*.log 2>/dev/null || true
	rm -rf "$GBPF_RUNTIME_DIR"
}
