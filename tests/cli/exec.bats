# gbpf policy exec: hex in, r0 out, every failure code 1.
load helper

# mov r0, N; exit
mov() { printf 'b7 00 00 00 %s 00 00 00 95 00 00 00 00 00 00 00' "$1"; }

both() {
	for engine in --interp --jit; do
		run --separate-stderr bash -c 'printf "%s" "$1" | "$0" policy exec $2 $3' "$GBPF" "$1" $engine "$2"
		echo "$engine: $status $output $stderr"
		[ "$status" -eq "$3" ]
		[ "$output" = "$4" ]
		[ "$3" -eq 0 ] || [[ "$stderr" == "gbpf: policy exec: "* ]]
	done
}

@test "r0 is printed as hex" {
	both "$(mov 2a)" "" 0 2a
}

@test "r1 is the memory, r2 its length" {
	both "71 10 00 00 00 00 00 00 95 00 00 00 00 00 00 00" "7f01" 0 7f
	both "bf 20 00 00 00 00 00 00 95 00 00 00 00 00 00 00" "000102" 0 3
}

@test "an access outside the memory fails" {
	both "79 10 00 10 00 00 00 00 95 00 00 00 00 00 00 00" "00" 1 ""
	both "b7 01 00 00 00 00 00 00 79 10 00 00 00 00 00 00 95 00 00 00 00 00 00 00" "" 1 ""
}

@test "an unknown instruction and a wild jump fail" {
	both "ff ff ff ff ff ff ff ff" "" 1 ""
	both "05 00 10 00 00 00 00 00 95 00 00 00 00 00 00 00" "" 1 ""
}

@test "an endless program is stopped" {
	both "05 00 ff ff 00 00 00 00 95 00 00 00 00 00 00 00" "" 1 ""
}

@test "what is not hex is refused" {
	both "hello" "" 1 ""
	both "b7 0" "" 1 ""
	both "" "" 1 ""
	both "$(mov 01)" "0g" 1 ""
}

@test "JSON" {
	run --separate-stderr bash -c 'printf "%s" "$1" | "$0" --json policy exec' "$GBPF" "$(mov ff)"
	[ "$status" -eq 0 ]
	json 'd["schema"] == "gbpf.policy.exec/1" and int(d["r0"], 16) == 0xff'
}
