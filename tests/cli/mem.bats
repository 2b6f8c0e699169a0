# gbpf mem: its messages and options. tests/system/vgpu_mem.bats has the figures.
load helper

@test "without programs mem ls says how to start one" {
	"$GBPF" run --device soft true
	run -0 "$GBPF" mem ls # settled: no program has been started since
	[ "$output" = 'There are no programs. `gbpf run --mem SIZE -- PROGRAM` starts one in a virtual GPU.' ]
	run -0 "$GBPF" --quiet mem ls # settled: likewise
	[ -z "$output" ]
	run -0 "$GBPF" --json mem ls # settled: likewise
	json 'd == {"schema": "gbpf.mem.ls/1", "tenants": []}'
}

@test "without gbpfd mem ls fails with the way to start it" {
	run -3 "$GBPF" mem ls
	echo "$output"
	[[ "$output" == "gbpf: "*gbpfd* ]]
	run -3 "$GBPF" --json mem ls
	json '"error" in d'
}

@test "mem takes no arguments and knows its options" {
	run -2 "$GBPF" mem ls 4802
	[[ "$output" == *"mem ls"* ]]
	run -2 "$GBPF" mem ls --wy
	[[ "$output" == *--why* ]]
	run -2 "$GBPF" mem
	[[ "$output" == *"mem ls"* ]]
	run -0 "$GBPF" mem ls --help
	[[ "$output" == *"-y, --why"*"show what cannot move, and why"* ]]
}

@test "other users' programs are counted and not shown" {
	[ "$(id -u)" -eq 0 ] || skip "needs root to become another user"
	setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$GBPF" || skip "user 65534 cannot reach $GBPF"
	chmod 755 "$cli_dir" "$GBPF_RUNTIME_DIR"
	"$GBPF" run --device soft --mem 64M --name train -- "$GBPF_PREFIX/lib/gbpf/samples/batch" >batch.out 2>&1 &
	eventually shows 'len(d["tenants"]) == 1' "$GBPF" mem ls
	run -0 setpriv --reuid 65534 --regid 65534 --clear-groups "$GBPF" mem ls # settled: the program runs until the end
	echo "$output"
	[ "$output" = "1 program of other users is not shown." ]
}
