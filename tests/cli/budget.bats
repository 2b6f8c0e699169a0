# One user's connections and requests use a small part of a processor in root's gbpfd; the operator is answered meanwhile.
load helper

setup() {
	cli_setup
	[ "$(id -u)" -eq 0 ] || skip "needs root to become another user"
	chmod 755 "$cli_dir" "$GBPF_RUNTIME_DIR"
	"$GBPF" run --device soft true
	pid=$(counter daemon pid)
}

counter() { "$GBPF" --json status | python3 -c 'import json,sys
d = json.load(sys.stdin)
for k in sys.argv[1:]: d = d[k]
print(d)' "$@"; }
# Processor time of gbpfd's loop in ms.
loop_ms() { echo $(($(cut -d' ' -f1 "/proc/$pid/task/$pid/schedstat") / 1000000)); }
now_ms() { echo $(($(date +%s%N) / 1000000)); }
paused() { [ "$(counter counters user_pauses)" -gt "$1" ]; }

# flooded KIND: two processes of a user flood; the operator works; gbpfd's loop has used at most a tenth of the time, the bursts
# and what the operator's own calls cost.
flooded() {
	local kind=$1 flooders=() begin time
	for _ in 1 2; do
		python3 "$BATS_TEST_DIRNAME/flood.py" 65534 "$kind" "$GBPF_RUNTIME_DIR" >/dev/null 3>&- &
		flooders+=($!)
	done
	eventually paused 3
	begin=$(loop_ms) time=$(now_ms)
	for name in fifo lc_first fair; do
		"$GBPF" policy swap "$name"
		"$GBPF" status >/dev/null
	done
	eventually paused $(($(counter counters user_pauses) + 20))
	time=$(($(now_ms) - time)) begin=$(($(loop_ms) - begin))
	echo "$kind: $begin ms of $time ms"
	for f in "${flooders[@]}"; do
		kill -0 "$f"
		kill "$f"
	done
	[ "$begin" -le $((time / 5 + 400)) ]
}

@test "connections of a user" { flooded connect; }
@test "requests of a user" { flooded hello; }
@test "sessions of a user that break the protocol" { flooded garbage; }

@test "other users cannot reach the operators' socket" {
	run setpriv --reuid 65534 --regid 65534 --clear-groups python3 -c 'import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])' "$GBPF_RUNTIME_DIR/admin.sock"
	[ "$status" -ne 0 ]
	[ "$(stat -c %a "$GBPF_RUNTIME_DIR/admin.sock")" = 600 ] || [ "$(stat -c %a "$GBPF_RUNTIME_DIR/admin.sock")" = 660 ]
}
