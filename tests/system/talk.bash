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
	read -r -t "$EVENTUALLY_SECONDS" -u "$out" word pid && [ "$word" = pid ]
}

# tell LINE...: the program has done each without an error.
tell() {
	local line answer
	for line; do
		echo "$line" >&"$in"
		read -r -t "$EVENTUALLY_SECONDS" -u "$out" answer
		[ "$answer" = ok ]
	done
}

# attach NAME [OPTION...]: attaches the tool of this build, without a budget unless the options have one, and sets $id.
attach() {
	local budget=()
	[[ " ${*:2} " == *" --budget "* ]] || budget=(--budget none)
	id=$(gbpf probe attach "$BUILD/$1.bpf.o" --json "${budget[@]}" "${@:2}" | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
}

# value MAP KEY: of the tool $id.
value() {
	gbpf map dump "$1" --probe "$id" --json | python3 -c '
import json, sys
print(*(e["value"] for e in json.load(sys.stdin)["entries"] if e["key"] == int(sys.argv[1])))' "$2"
}

# tool_has EXPRESSION: waits until it is true over p, the record of the tool $id in `gbpf probe ls`.
tool_has() { eventually shows "any($1 for p in d['probes'] if p['id'] == $id)" gbpf probe ls; }

# has_kernels N: waits until as many kernels run the tool $id.
has_kernels() { tool_has "p['kernels'] == $1"; }

# forms_are "PTX STUB BRACKETS": waits until as many kernels run the tool $id in forms from PTX, from stubs, and with brackets alone.
forms_are() { tool_has "'%(ptx)d %(stub)d %(brackets)d' % p['forms'] == '$1'"; }

# says TEXT: waits until `gbpf probe ls` says it of the tool $id.
says() { tool_has "${1@Q} in p['why']"; }

# interruptions: of the program $pid so far.
interruptions() {
	gbpf ps --json | python3 -c '
import json, sys
print(*(t["stats"]["interruptions"] for t in json.load(sys.stdin)["tenants"] if t["pid"] == int(sys.argv[1])))' "$pid"
}
