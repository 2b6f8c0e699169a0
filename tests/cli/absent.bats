# Without a daemon: code 3, and a message that says what to do.
load helper

@test "verbs that need gbpfd return 3 when none runs" {
	for words in ps "ps --why" status device off on shutdown events "policy list" "policy show" "policy unload" \
		"policy rollback" "policy load fair" "policy swap fair" "set 1 --weight 5"; do
		run --separate-stderr "$GBPF" $words
		echo "$words: $status $stderr"
		[ "$status" -eq 3 ]
		[ -z "$output" ]
		[[ "$stderr" == "gbpf: "*gbpfd* ]]
		[ "$(wc -l <<<"$stderr")" -eq 1 ]
	done
}

@test "the same under --json" {
	run -3 --separate-stderr "$GBPF" --json ps
	[ -z "$stderr" ]
	json 'd["error"]["code"] == "unreachable" and d["error"]["exit"] == 3 and d["error"]["hint"]'
}

@test "--socket takes the place of the runtime directory" {
	run -3 --separate-stderr "$GBPF" --socket /nonexistent/control.sock ps
	[[ "$stderr" == *"/nonexistent"* ]]
}

@test "a stale socket file is not a daemon" {
	python3 -c 'import socket,sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])' "$GBPF_RUNTIME_DIR/control.sock"
	run -3 --separate-stderr "$GBPF" ps
}

# A server that gives the answers of its arguments.
serve() {
	python3 - "$GBPF_RUNTIME_DIR/control.sock" "$1" <<'END' &
import signal, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
open(sys.argv[1] + '.ready', 'w').close()
c, _ = s.accept()
if sys.argv[2] == 'silent':
	signal.pause() # the test kills it
c.recv(65536)
c.sendall(sys.argv[2].encode() + b'\n')
c.recv(65536)
END
	server=$!
	eventually test -e "$GBPF_RUNTIME_DIR/control.sock.ready"
}

@test "a daemon that does not answer is a timeout, code 8" {
	serve silent
	run -8 --separate-stderr "$GBPF" --timeout 300ms ps
	kill $server 2>/dev/null || true
}

@test "a daemon of another protocol is refused with both numbers" {
	serve '{"id":1,"error":{"code":"protocol","exit":1,"message":"protocol 1 is not spoken here, but 7","hint":""}}'
	run ! --separate-stderr "$GBPF" ps
	kill $server 2>/dev/null || true
	echo "$status $stderr"
	[[ "$stderr" == *7* ]]
}

@test "garbage from the socket is an error, not a crash" {
	serve '{{{{ not json'
	run ! --separate-stderr "$GBPF" --timeout 2 ps
	kill $server 2>/dev/null || true
	echo "$status $stderr"
	[ "$status" -le 8 ]
	[[ "$stderr" == "gbpf: "* ]]
}
