# What the output looks like on terminals of several kinds, and with -q.
load helper

# on_terminal COLUMNS COMMAND...: runs it on a terminal of that width; prints what it writes there.
on_terminal() {
	python3 - "$@" <<'PYTHON'
import fcntl, os, pty, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
	fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('4H', 24, int(sys.argv[1]), 0, 0))
	os.environ.pop('COLUMNS', None)
	os.execvp(sys.argv[2], sys.argv[2:])
out = b''
while True:
	try:
		part = os.read(fd, 65536)
	except OSError:
		break
	if not part:
		break
	out += part
os.waitpid(pid, 0)
sys.stdout.write(out.decode().replace('\r\n', '\n'))
PYTHON
}

# widest TEXT: columns of its longest line.
widest() { python3 -c 'import sys, unicodedata
print(max(sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in l) for l in sys.argv[1].split("\n")))' "$1"; }

start_named() {
	"$GBPF" run --device soft --name "$1" -- "$GBPF_PREFIX/lib/gbpf/samples/batch" --seconds 1000 >out 2>&1 &
	eventually grep -q ready out
}

@test "a table fits the terminal: long names are shortened; a pipe gets all of them" {
	local name=a-service-with-a-name-of-some-fifty-characters-in-all
	start_named $name
	eventually prints " $name " "$GBPF" --color never ps
	run on_terminal 250 "$GBPF" --color never ps # settled: the only program is listed, and its figures do not matter
	[[ "$output" == *" $name "* ]]
	run on_terminal 100 "$GBPF" --color never ps # settled: likewise
	echo "$output"
	[ "$(widest "$output")" -le 100 ]
	[[ "$output" == *"a-serv"*"… "* ]]
	COLUMNS=90 eventually prints " $name " "$GBPF" --color never ps
}

@test "on a narrow terminal the columns that are wanted least are left out" {
	start_named narrow
	eventually prints " narrow " "$GBPF" --color never ps
	run on_terminal 60 "$GBPF" --color never ps # settled: the only program is listed, and its figures do not matter
	echo "$output"
	[ "$(widest "$output")" -le 60 ]
	[[ "$output" == *PID*NAME*LAUNCHES*MEMORY*POLICY* ]]
	[[ "$output" == *" narrow "* ]]
	[[ "$output" != *LANE* && "$output" != *LEVEL* ]]
	run "$GBPF" --color never ps # settled: likewise
	[[ "$output" == *LANE*LEVEL*COMMAND* ]]
}

@test "a list of virtual GPUs on a narrow terminal keeps what was given and what is used" {
	start_named narrow # settled: "gbpf vgpu" needs a gbpfd
	"$GBPF" -q vgpu create train --mem 64M --compute 30 --copy 20
	run on_terminal 80 "$GBPF" --color never vgpu ls # settled: its owner alone changes it
	echo "$output"
	[ "$(widest "$output")" -le 80 ]
	[[ "$output" == *NAME*PROCESSES*USED*MEMORY*COMPUTE*ACTUAL* ]]
	[[ "$output" != *BURST* && "$output" != *PRIORITY* ]]
	run "$GBPF" --color never vgpu ls # settled: likewise
	[[ "$output" == *COMPUTE*ACTUAL*COPY*PRIORITY*BURST* ]]
}

@test "wide characters are counted as the terminal shows them" {
	start_named "$(printf '\u4e2d\u6587\u4e2d\u6587\u4e2d\u6587')"
	start_named plain
	eventually shows 'len(d["tenants"]) == 2' "$GBPF" ps
	run on_terminal 250 "$GBPF" --color never ps # settled: both programs are listed, and their figures do not matter
	echo "$output"
	[ "$(python3 -c 'import sys, unicodedata
w = lambda t: sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in t)
head, *lines = sys.argv[1].strip().split("\n")
at = w(head[:head.index("CLASS")])
def cut(l):
	n = 0
	for i, c in enumerate(l):
		if n >= at: return l[i:]
		n += w(c)
print(len({cut(l).split()[0] for l in lines}))' "$output")" = 1 ]
}

@test "without UTF-8 the output is ASCII" {
	local name
	name=$(printf 'caf\u00e9')
	start_named "$name"
	for words in "doctor --device soft" "policy check $GBPF_PREFIX/lib/gbpf/policies/fifo.bpf.o" "policy check /nonexistent/$name.o" \
		"ps" "policy swap fair" "policy swap fifo"; do
		LC_ALL=C run "$GBPF" $words
		echo "$output"
		[ -z "$(LC_ALL=C grep -P '[^\x00-\x7f]' <<<"$output")" ]
		[ -n "$output" ]
	done
	[[ "$output" == *"fair@"*" -> fifo@"* ]]
	LC_ALL=C run "$GBPF" doctor --device soft
	[[ "$output" == "ok shim: "* ]]
	LC_ALL=C.UTF-8 run "$GBPF" doctor --device soft
	[[ "$output" == "✓ shim: "* ]]
}

@test "-q: what succeeds says nothing; data and errors are printed" {
	start_named quiet
	local pid
	pid=$(pid_of quiet)
	cp "$GBPF_PREFIX/lib/gbpf/policies/fair.bpf.o" fair.bpf.o
	for words in "policy swap fair" "policy swap fifo" "policy rollback" "set $pid --weight 7" "off" "on" "policy unload" \
		"policy check fair.bpf.o" "policy new p" "policy build p" "doctor --device soft" "shutdown"; do
		run "$GBPF" -q $words
		echo "$words: $output"
		[ "$status" -eq 0 ]
		[ -z "$output" ]
	done
	run "$GBPF" -q policy check /nonexistent.o
	[ "$status" -ne 0 ]
	[[ "$output" == *nonexistent* ]]
	"$GBPF" -q policy list 2>&1 | grep -q . || "$GBPF" -q status 2>&1 | grep -q .
}

@test "output to a pipe that its reader has closed ends quietly, as SIGPIPE ends programs" {
	"$GBPF" run --device soft true
	for words in "events" "policy list" "--json status" "help" "bench dev" "bench latency --help" "bench dev hook --repeat 1 --calls 1000"; do
		run python3 - "$GBPF" $words <<-'E'
			import os, subprocess, sys
			r, w = os.pipe()
			os.close(r)
			p = subprocess.run(sys.argv[1:], stdout=w, stderr=subprocess.PIPE, restore_signals=True)
			print(p.returncode, p.stderr.decode())
		E
		echo "$words: $output"
		[ "$output" = "141 " ]
	done
	run bash -c '"$0" events >/dev/full' "$GBPF"
	[ "$status" -eq 1 ]
	[[ "$output" == "gbpf: standard output: "*"earlier write has failed" || "$output" == *"No space left on device" ]]
}
