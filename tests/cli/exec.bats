# gbpf policy exec: hex in, r0 out, every failure code 1.
load helper

# mov r0, N; exit
mov() { printf 'b7 00 00 00 %s 00 00 00 95 00 00 00 00 00 00 00' "$1"; }

# every PROGRAM MEMORY STATUS OUTPUT: the same on all engines
every() {
	local engine
	for engine in --interp --jit "--ptx --device=soft"; do
		# shellcheck disable=SC2086 # the engine may be two words
		run --separate-stderr bash -c 'printf "%s" "$1" | "$0" policy exec "${@:2}"' "$GBPF" "$1" $engine "$2"
		echo "$engine: $status $output $stderr"
		[ "$status" -eq "$3" ]
		[ "$output" = "$4" ]
		[ "$3" -eq 0 ] || [[ "$stderr" == "gbpf: policy exec: "* ]]
	done
}

@test "r0 is printed as hex" {
	every "$(mov 2a)" "" 0 2a
}

@test "r1 is the memory, r2 its length" {
	every "71 10 00 00 00 00 00 00 95 00 00 00 00 00 00 00" "7f01" 0 7f
	every "bf 20 00 00 00 00 00 00 95 00 00 00 00 00 00 00" "000102" 0 3
}

@test "the clock is the only helper" {
	every "b7 06 00 00 07 00 00 00 85 00 00 00 05 00 00 00 bf 60 00 00 00 00 00 00 95 00 00 00 00 00 00 00" "" 0 7
	every "b7 01 00 00 00 00 00 00 85 00 00 00 07 00 00 00 95 00 00 00 00 00 00 00" "" 1 ""
}

@test "an access outside the memory fails" {
	every "79 10 00 10 00 00 00 00 95 00 00 00 00 00 00 00" "00" 1 ""
	every "b7 01 00 00 00 00 00 00 79 10 00 00 00 00 00 00 95 00 00 00 00 00 00 00" "" 1 ""
}

@test "an unknown instruction and a wild jump fail" {
	every "ff ff ff ff ff ff ff ff" "" 1 ""
	every "05 00 10 00 00 00 00 00 95 00 00 00 00 00 00 00" "" 1 ""
}

@test "an endless program is stopped" {
	every "05 00 ff ff 00 00 00 00 95 00 00 00 00 00 00 00" "" 1 ""
}

@test "what is not hex is refused" {
	every "hello" "" 1 ""
	every "b7 0" "" 1 ""
	every "" "" 1 ""
	every "$(mov 01)" "0g" 1 ""
}

@test "JSON" {
	run --separate-stderr bash -c 'printf "%s" "$1" | "$0" --json policy exec' "$GBPF" "$(mov ff)"
	[ "$status" -eq 0 ]
	json 'd["schema"] == "gbpf.policy.exec/1" and int(d["r0"], 16) == 0xff'
}

@test "JSON of a run on a GPU names the device" {
	run --separate-stderr bash -c 'printf "%s" "$1" | "$0" --json policy exec --ptx -d soft' "$GBPF" "$(mov ff)"
	[ "$status" -eq 0 ]
	json 'd["engine"] == "ptx" and d["device"] == "soft" and int(d["r0"], 16) == 0xff'
}

@test "the PTX says where a program fails, in the words of the interpreter" {
	local program engine said
	# a load beyond the memory at insn 1; an endless loop at insn 1; a function that calls itself
	for program in "b7 00 00 00 00 00 00 00 79 10 00 10 00 00 00 00 95 00 00 00 00 00 00 00" \
		"b7 00 00 00 00 00 00 00 05 00 ff ff 00 00 00 00" \
		"85 10 00 00 01 00 00 00 95 00 00 00 00 00 00 00 85 10 00 00 ff ff ff ff 95 00 00 00 00 00 00 00"; do
		said=
		for engine in --interp "--ptx --device=soft"; do
			# shellcheck disable=SC2086
			run --separate-stderr bash -c 'printf "%s" "$1" | "$0" policy exec "${@:2}"' "$GBPF" "$program" $engine 00
			[ "$status" -eq 1 ]
			[[ "$stderr" == "gbpf: policy exec: insn "* ]]
			[ -z "$said" ] || [ "$said" = "$stderr" ]
			said=$stderr
		done
	done
}

@test "engines exclude each other, and only PTX has a device" {
	run --separate-stderr "$GBPF" policy exec --ptx --jit </dev/null
	[ "$status" -eq 2 ]
	run --separate-stderr "$GBPF" policy exec --jit --device soft </dev/null
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"--device is an option of --ptx"* ]]
}

@test "without a driver the run on a GPU fails with a message" {
	run --separate-stderr bash -c 'printf "%s" "$1" | GBPF_REAL_CUDA=/nonexistent/libcuda.so.1 "$0" policy exec --ptx' "$GBPF" "$(mov 01)"
	[ "$status" -eq 1 ]
	[[ "$stderr" == "gbpf: policy exec: GBPF_REAL_CUDA: /nonexistent/libcuda.so.1: No such file or directory"* ]]
	[ -z "$output" ]
}

@test "a program whose PTX is too long is refused" {
	# 60 000 loads
	run --separate-stderr bash -c '{ printf "7910000000000000%.0s" {1..60000}; printf 9500000000000000; } | "$0" policy exec --ptx -d soft 0000000000000000' "$GBPF"
	[ "$status" -eq 1 ]
	[ "$stderr" = "gbpf: policy exec: the PTX of the program exceeds 16 MiB" ]
}

@test "the PTX writes what the interpreter writes" {
	# *(u64 *)(r1 + 8) = *(u64 *)r1 + 1; r0 = *(u32 *)(r1 + 9)
	local program="79 10 00 00 00 00 00 00 07 00 00 00 01 00 00 00 7b 01 08 00 00 00 00 00 61 10 09 00 00 00 00 00 95 00 00 00 00 00 00 00"
	every "$program" "ffffffff01020304 0000000000000000ff" 0 2000000
}
