# gbpf bench dev soft: the figures are there and make sense; how good they are is for docs/BENCHMARKS.md.
load helper

@test "bench dev soft measures every section, and reports limits" {
	run --separate-stderr "$GBPF" --json bench dev soft --rounds 1 --ms 20 --kills 5
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	json 'd["schema"] == "gbpf.bench.soft/1" and d["failed"] == 0'
	json '{f["section"] for f in d["figures"]} == {"fma", "samples", "empty", "copy", "slices", "many", "kills"}'
	json 'len([f for f in d["figures"] if f["section"] == "samples"]) == 13'
	json 'all(f["value"] > 0 for f in d["figures"] if f["section"] in ("fma", "samples", "empty", "copy", "many"))'
	json 'all(f["target"]["met"] for f in d["figures"] if f["section"] == "many" and "target" in f)'
	json 'd["missed"] == len([f for f in d["figures"] if "target" in f and not f["target"]["met"]])'
}

@test "bench dev soft leaves nothing running and no folder" {
	TMPDIR=$cli_dir run "$GBPF" bench dev soft --rounds 1 --ms 20 fma
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"lane instructions a core"*"at least 1:"* ]]
	[ -z "$(ls -d "$cli_dir"/gbpf-bench-* 2>/dev/null)" ]
	run ! pgrep -f "$cli_dir/gbpf-bench-"
}

@test "bench dev soft measures the server that runs" {
	"$GBPF_PREFIX/bin/gbpf-softgpu" --foreground --socket "$GBPF_RUNTIME_DIR/softgpu.sock" --workers 1 &
	server=$!
	listening() { [ -S "$GBPF_RUNTIME_DIR/softgpu.sock" ]; }
	eventually listening
	run --separate-stderr "$GBPF" --json bench dev soft --running --rounds 1 --ms 20 fma
	kill $server
	[ "$status" -eq 0 ]
	json 'd["workers"] == 1'
	run "$GBPF" bench dev soft --running fma
	[ "$status" -eq 1 ]
}

@test "bench dev soft refuses what makes no sense" {
	run "$GBPF" bench dev soft nosuch
	[ "$status" -eq 2 ]
	[[ "$output" == *nosuch* ]]
	run "$GBPF" bench dev soft --rounds 0
	[ "$status" -eq 2 ]
}
