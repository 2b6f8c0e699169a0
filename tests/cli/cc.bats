# `gbpf cc`: the command lines that it makes of a compiler's.
load helper

@test "nvcc gets the shared runtime library" {
	run "$GBPF" cc --print -- nvcc -O2 -o x x.cu
	[ "$status" -eq 0 ]
	[ "$output" = "nvcc -O2 -o x x.cu -cudart shared" ]
	run "$GBPF" cc --print /opt/cuda/bin/nvcc -cudart static --cudart=none -arch=sm_90 x.cu
	[ "$output" = "/opt/cuda/bin/nvcc -arch=sm_90 x.cu -cudart shared" ]
}

@test "nvcc writes PTX where the line lists other code" {
	run "$GBPF" cc --print -- nvcc -gencode arch=compute_90,code=sm_90 x.cu
	[ "$output" = "nvcc -gencode arch=compute_90,code=sm_90 x.cu -cudart shared -gencode arch=compute_80,code=compute_80" ]
}

@test "other compilers link the shared library in place of the static one" {
	run "$GBPF" cc --print -- g++ -o x x.o -L/opt/cuda/lib64 -lcudart_static -ldl
	[ "$output" = "g++ -o x x.o -L/opt/cuda/lib64 -lcudart -ldl" ]
}

@test "the compiler is run, and its exit code returned" {
	run "$GBPF" cc -- sh -c 'echo ran; exit 7'
	[ "$status" -eq 7 ]
	[ "$output" = ran ]
	run -127 "$GBPF" cc -- no-such-compiler x.cu
	[ "$status" -eq 127 ]
	[[ "$output" == *"cc: 'no-such-compiler' not found"* ]]
}

@test "the command line as JSON" {
	run "$GBPF" cc --json --print -- nvcc x.cu
	json 'd["schema"] == "gbpf.cc/1" and d["command"] == ["nvcc", "x.cu", "-cudart", "shared"]'
}

@test "gBPF's runtime library is on the path of programs of the soft GPU alone" {
	[ -e "$GBPF_PREFIX/lib/gbpf/soft/libcudart.so.12" ]
	[ -e "$GBPF_PREFIX/lib/gbpf/soft/libcudart.so.13" ]
	run --separate-stderr "$GBPF" run --device soft -- printenv LD_LIBRARY_PATH
	[ "$status" -eq 0 ]
	[[ ":$output:" == *":$(realpath "$GBPF_PREFIX")/lib/gbpf/soft:"* ]]
	cp "$GBPF_PREFIX/lib/gbpf/soft/libcuda.so.1" "$BATS_TEST_TMPDIR/libcuda.so.1" # stands for a card's driver
	GBPF_REAL_CUDA=$BATS_TEST_TMPDIR/libcuda.so.1 LD_LIBRARY_PATH= run --separate-stderr "$GBPF" run -- printenv LD_LIBRARY_PATH
	[ "$status" -eq 0 ]
	[[ "$output" != *"/lib/gbpf/soft"* ]]
}
