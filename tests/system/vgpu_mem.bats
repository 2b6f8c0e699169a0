#!/usr/bin/env bats
# gbpf mem ls: what programs in virtual GPUs hold, what of it can move to the host, and why the rest cannot.

load helpers
load vgpu_helpers

# mem NAME EXPRESSION: waits until it is true over g, what gbpf mem ls has of a server's GPU, and of, what cannot move by kind in MiB.
mem() {
	local pid=pid_$1
	eventually shows "any(t['pid'] == ${!pid} and any($2 for g in t['gpus'][:1] for of in [{f['kind']: f['bytes'] >> 20 for f in g['fixed']}]) for t in d['tenants'])" gbpf mem ls
}

# Kinds are recorded for all that it holds.
adds_up() { # NAME
	mem "$1" "'other' not in of and g['mem_used'] == g['movable'] + sum(f['bytes'] for f in g['fixed'])"
}

why() { # NAME KIND TEXT: why memory of that kind cannot move
	mem "$1" "[f['why'] for f in g['fixed'] if f['kind'] == '$2'] == ['$3']"
}

# row NAME TEXT: waits for a line of the table that begins with the program.
row() {
	local pid=pid_$1
	eventually prints "^ *${!pid} +$2" gbpf mem ls
}

@test "chunks can move, and what has left is on the host" {
	start_all
	start_servers_with "--mem 64M --swap 256M --name train" a
	expect ok a alloc 40
	mem a 'g["mem_used"] == g["movable"] == 40 << 20 and g["swapped"] == 0 and not of and g["no_chunks"] == ""'
	row a 'train +[0-9a-f]+ +0 +40.0 MiB +40.0 MiB +0 B +[^ ]*vgpu serve$'
	expect ok a alloc 40
	mem a 'g["movable"] + g["swapped"] == 80 << 20 and g["swapped"] >= 16 << 20 and g["mem_used"] <= g["mem_limit"] == 64 << 20'
	adds_up a
	expect ok a free
	expect ok a free
	mem a 'g["mem_used"] == g["movable"] == g["swapped"] == 0 and not of'
	row a 'train +[0-9a-f]+ +0 +0 B +0 B +0 B '
}

@test "what cannot move is shown by kind, with its reason" {
	start_all
	start_servers_with "--mem 256M --swap 256M" a
	expect ok a alloc 10
	for kind in linear-1000 pitch managed-1000 managed create array array-64K async async-1M; do
		expect ok a take-$kind
	done
	expect ok a load 3
	mem a 'g["movable"] == 24 << 20 and of == {"pitched": 4, "managed": 2, "created": 2, "arrays": of["arrays"], "pools": of["pools"], "variables": of["variables"]} and of["arrays"] >= 6 and of["pools"] >= 1 and of["variables"] >= 2'
	adds_up a
	why a created "cuMemCreate: not mapped, or in a way that chunks cannot be"
	run gbpf mem ls --why # settled: the server waits for a command
	echo "$output"
	[[ $output == *"($pid_a), GPU 0: "*" cannot move"$'\n'* ]]
	[[ $output == *$'\n'"    4.00 MiB  pitched "*" allocations with a pitch"$'\n'* ]]
}

@test "what the driver takes for contexts is overhead" {
	start_soft --context-memory 24M
	start_daemon
	start_servers_with "--mem 128M --swap 64M" a
	mem a 'of.get("overhead") == 24 and g["movable"] == 0'
	adds_up a
}

@test "without swap nothing can move, and the reason is that" {
	start_all
	start_servers 64 a
	expect ok a alloc 10
	mem a 'g["movable"] == 0 and of == {"linear": 10} and g["no_chunks"] == "the virtual GPU has no swap"'
	why a linear "the virtual GPU has no swap"
	eventually prints 'GPU 0: 10.0 MiB of 10.0 MiB cannot move; nor can new memory: the virtual GPU has no swap$' gbpf mem ls --why
	expect ok a take-create
	why a created "the virtual GPU has no swap"
}

@test "a program that started before its virtual GPU had swap is shown as such, and chunks after swap was taken away" {
	start_all
	gbpf -q vgpu create train --mem 64M
	start_servers_with "--vgpu train" a
	expect ok a alloc 10
	gbpf -q vgpu set train --swap 64M
	start_servers_with "--vgpu train" b
	expect ok b alloc 10
	why a linear "the program started before the virtual GPU had swap"
	mem b 'g["movable"] == 10 << 20 and not of'
	gbpf -q vgpu set train --swap none
	why b chunks "the virtual GPU has no swap any more"
	mem b 'g["movable"] == 0 and of == {"chunks": 10}'
}

@test "a program that sees several GPUs has chunks, and a line for each GPU that it uses" {
	start_soft --gpus 2
	start_daemon
	start_servers_with "--mem 64M --swap 64M" a
	expect ok a alloc 10
	row a '.* 0 +10.0 MiB +10.0 MiB +0 B '
	eventually shows "[len(t['gpus']) for t in d['tenants']] == [2]" gbpf mem ls
	run gbpf mem ls # settled: the server waits for a command
	echo "$output"
	[ "$(grep -c serve <<<"$output")" -eq 1 ]
}

@test "memory of other processes is shown apart, and as inherited once this one is charged" {
	start_all
	start_servers 64 a b
	expect ok a share 10
	expect ok b open
	mem b 'g["mem_used"] == 0 and g["mem_shared"] == 10 << 20'
	eventually prints '^  and 10.0 MiB of other processes. memory, which these are charged for$' gbpf mem ls --why
	kill -9 "$pid_a"
	mem b 'g["mem_used"] == 10 << 20 and g["mem_shared"] == 0 and of == {"inherited": 10}'
}

@test "a killed program leaves no line, and the next one in its place begins at nothing" {
	start_all
	gbpf -q vgpu create train --mem 64M --swap 128M
	start_servers_with "--vgpu train" a
	start_servers_with "--vgpu train" b
	expect ok b alloc 60
	expect ok b alloc 40
	expect ok b take-linear-1000
	expect ok b take-pitch
	mem b 'g["swapped"] > 0 and of == {"pitched": 4}'
	kill -9 "$pid_b"
	eventually shows "[t['pid'] for t in d['tenants']] == [$pid_a]" gbpf mem ls
	gbpf -q vgpu set train --swap none
	start_servers_with "--vgpu train" c
	mem c 'g["mem_used"] == g["swapped"] == 0 and not of'
	expect ok c alloc 4
	mem c 'of == {"linear": 4}'
}

@test "figures survive a restart of gbpfd" {
	start_all
	start_servers_with "--mem 64M --swap 128M" a
	expect ok a alloc 60
	expect ok a alloc 40
	mem a 'g["swapped"] > 0 and g["movable"] > 0'
	kill_daemon
	start_daemon
	mem a 'g["swapped"] + g["movable"] == 100 << 20'
	adds_up a
	expect ok a free
	mem a 'g["swapped"] + g["movable"] == 60 << 20'
}

@test "a program that writes over its account is listed with bounded figures" {
	start_all
	start_servers_with "--mem 64M --swap 64M" a b
	expect ok a alloc 10
	expect ok a scribble 1
	mem a 'all(isinstance(x, int) and 0 <= x < 1 << 63 for x in (g["mem_used"], g["movable"], g["swapped"], g["mem_shared"]))'
	run gbpf mem ls --why # settled: nothing is charged any more
	[ "$status" -eq 0 ]
	gbpf status >/dev/null
}

@test "programs in no virtual GPU are named" {
	start_all
	gbpf run --device soft -- "$SAMPLES/batch" >"$GBPF_RUNTIME_DIR/batch.log" 2>&1 3>&- &
	pids+=($!)
	local pid
	pid=$(pid_of batch)
	eventually shows "[(t['pid'], t['vgpu'], 'gpus' in t) for t in d['tenants']] == [($pid, '', False)]" gbpf mem ls
	run gbpf mem ls # settled: it is in none
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$output" = "1 program is in no virtual GPU, where memory is not counted ($pid). Start it with \`gbpf run --mem SIZE\` or \`--vgpu NAME\`." ]
}
