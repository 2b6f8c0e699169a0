# A soft GPU, gbpfd, and programs that obey lines: probed and traced.

BUILD=${GBPF_BUILD:-build}/tests/system

begin() {
	start_soft "$@"
	start_daemon
}

# start [OPTION...]: starts the program $PROGRAM, whose process number becomes $pid.
PROGRAM=probed
start() {
	mkfifo "$GBPF_RUNTIME_DIR/in.$((++started))" "$GBPF_RUNTIME_DIR/out.$started"
	gbpf run --device soft "$@" -- "$BUILD/$PROGRAM" <"$GBPF_RUNTIME_DIR/in.$started" \
		>"$GBPF_RUNTIME_DIR/out.$started" 3>&- &
	pids+=($!)
	exec {in}>"$GBPF_RUNTIME_DIR/in.$started" {out}<"$GBPF_RUNTIME_DIR/out.$started"
	local word
	read -r -t 60 -u "$out" word pid && [ "$word" = pid ]
}

# tell LINE...: the program has done each without an error.
tell() {
	local line answer
	for line; do
		echo "$line" >&"$in"
		read -r -t 120 -u "$out" answer
		[ "$answer" = ok ]
	done
}

# attach NAME [OPTION...]: attaches the tool of this build and sets $id.
attach() {
	id=$(gbpf probe attach "$BUILD/$1.bpf.o" --json "${@:2}" | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
}

# value MAP KEY: of the tool $id.
value() {
	gbpf map dump "$1" --probe "$id" --json | python3 -c '
import json, sys
print(*(e["value"] for e in json.load(sys.stdin)["entries"] if e["key"] == int(sys.argv[1])))' "$2"
}

# counts_interruptions MIN: of the program $pid.
counts_interruptions() { tenant "$pid" "t[\"stats\"][\"interruptions\"] >= $1"; }
