# The soft GPU as a user meets it: what it reports of itself, what it lacks, and --check.
load helper

# A program with two kernels: right leaves things alone, wrong reads memory that was never written and runs over the end of 400 bytes.
program() {
	cat >kernels.c <<-'END'
		#include <stdio.h>
		#include <string.h>
		typedef unsigned long long ptr;
		int cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuModuleLoadData(void **, const void *);
		int cuModuleGetFunction(void **, void *, const char *), cuMemAlloc_v2(ptr *, size_t), cuCtxSynchronize(void);
		int cuMemsetD8_v2(ptr, unsigned char, size_t), cuImportExternalMemory(void **, void *);
		int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
				   void **);
		static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			".visible .entry k(.param .u64 a)\n{\n.reg .b32 %r<3>; .reg .b64 %d<4>;\n"
			"ld.param.u64 %d0, [a];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d1, %r0, 4;\nadd.u64 %d2, %d0, %d1;\n"
			"ld.global.u32 %r1, [%d2];\nst.global.u32 [%d2], %r1;\nret;\n}\n";
		int main(int n, char **arg)
		{
			int wrong = n > 1 && strcmp(arg[1], "wrong") == 0;
			void *ctx, *m, *f;
			ptr p;
			void *args[] = { &p };
			if (cuInit(0) || cuCtxCreate_v2(&ctx, 0, 0) || cuModuleLoadData(&m, ptx) ||
			    cuModuleGetFunction(&f, m, "k") || cuMemAlloc_v2(&p, 400))
				return 9;
			cuImportExternalMemory(&m, 0);
			if (!wrong)
				cuMemsetD8_v2(p, 1, 400);
			if (cuLaunchKernel(f, 1, 1, 1, wrong ? 101 : 100, 1, 1, 0, 0, args, 0) || cuCtxSynchronize())
				return 8;
			puts("done");
			fflush(stdout);
			if (n > 1 && strcmp(arg[1], "wait") == 0)
				getchar();
			return n > 2 ? 7 : 0;
		}
	END
	gcc -w -o kernels kernels.c -L"$GBPF_PREFIX/lib/gbpf/soft" -l:libcuda.so.1
}

@test "without a soft GPU, device --soft says how one starts" {
	run "$GBPF" device --soft
	[ "$status" -eq 3 ]
	[[ "$output" == *"no soft GPU is running"*"gbpf run --device soft"* ]]
	run "$GBPF" device --pid 1
	[ "$status" -eq 2 ]
}

@test "device --soft shows memory and contexts while a program runs" {
	program
	mkfifo go
	"$GBPF" run --device soft ./kernels wait <go >out &
	exec 7>go
	eventually grep -q done out
	run "$GBPF" --json device --soft
	[ "$status" -eq 0 ]
	json 'len(d["gpus"]) == 1 and d["gpus"][0]["memory_used_bytes"] >= 400'
	json 'len(d["contexts"]) == 1 and d["contexts"][0]["launches"] == 1 and d["contexts"][0]["enabled"]'
	run "$GBPF" device --soft
	[[ "$output" == *"PID"*"enabled"* ]]
	exec 7>&-
	wait
}

@test "device --unsupported counts unsupported calls" {
	program
	"$GBPF" run --device soft ./kernels
	"$GBPF" run --device soft ./kernels
	run "$GBPF" --json device --unsupported
	[ "$status" -eq 0 ]
	json 'd["unsupported"] == [{"function": "cuImportExternalMemory", "calls": 2}]'
	run "$GBPF" device --unsupported
	[[ "$output" == *"2  cuImportExternalMemory"* ]]
}

@test "libnvidia-ml.so.1 answers the queries of tools that watch GPUs" {
	program
	cat >watch.py <<-'END'
		import ctypes, sys
		n = ctypes.CDLL('libnvidia-ml.so.1')
		d, k, text = ctypes.c_void_p(), ctypes.c_uint(), ctypes.create_string_buffer(96)
		memory, load = (ctypes.c_ulonglong * 3)(), (ctypes.c_uint * 2)()
		if n.nvmlInit_v2(): sys.exit(n.nvmlInit_v2())
		assert n.nvmlDeviceGetCount_v2(ctypes.byref(k)) == 0 and k.value == 1
		assert n.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(d)) == 2
		assert n.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(d)) == 0
		assert n.nvmlDeviceGetUUID(d, text, 96) == 0 and text.value.startswith(b'GPU-')
		assert n.nvmlDeviceGetUUID(d, text, 8) == 7
		assert n.nvmlDeviceGetMemoryInfo(d, memory) == 0 and memory[2] >= 400 and sum(memory[1:]) == memory[0]
		assert n.nvmlDeviceGetUtilizationRates(d, load) == 0 and load[0] <= 100
		k.value = 4
		pids = (ctypes.c_ulonglong * 12)()
		assert n.nvmlDeviceGetComputeRunningProcesses_v3(d, ctypes.byref(k), pids) == 0 and k.value == 1
		pid, use, seen = pids[0] & 0xffffffff, (ctypes.c_uint * 32)(), ctypes.c_ulonglong()
		sample = lambda: n.nvmlDeviceGetProcessUtilization(d, use, ctypes.byref(k), seen)
		assert n.nvmlDeviceGetProcessUtilization(d, None, ctypes.byref(k), seen) == 7 and k.value == 1
		assert sample() == 0 and k.value == 1 and use[0] == pid and use[4] == 1 # it has worked since its start,
		seen.value = use[2] | use[3] << 32
		while sample() == 6: k.value = 4 # no newer sample yet
		assert use[0] == pid and use[4] == 0 and use[5] == 0 # and not since then
		assert n.nvmlDeviceGetTemperature(d, 0, ctypes.byref(k)) == 3
		assert n.nvmlDeviceGetName(ctypes.byref(k), text, 96) == 2
		assert n.nvmlShutdown() == 0 and n.nvmlDeviceGetName(d, text, 96) == 1
	END
	LD_LIBRARY_PATH=$GBPF_PREFIX/lib/gbpf/soft run python3 watch.py
	[ "$status" -eq 9 ] # nothing runs
	mkfifo go
	"$GBPF" run --device soft ./kernels wait <go >out &
	exec 7>go
	eventually grep -q done out
	run "$GBPF" run --device soft python3 watch.py
	echo "$output"
	[ "$status" -eq 0 ]
	exec 7>&-
	wait
}

@test "run --check is silent about a right program and keeps its exit code" {
	program
	run --separate-stderr "$GBPF" run --check ./kernels
	[ "$status" -eq 0 ]
	[ "$output" = done ]
	[[ "$stderr" == *"nothing found"* ]]
	run "$GBPF" run --check ./kernels right 7
	[ "$status" -eq 7 ]
}

@test "run --check names line, thread and fault, and exits with 1" {
	program
	run --separate-stderr "$GBPF" run --check ./kernels wrong
	[ "$status" -eq 1 ]
	[ "$output" = done ]
	[[ "$stderr" == *":11: kernel k, block 0,0,0, thread 0: reads 4 bytes of device memory at 0x"*"nothing has written"* ]]
	[[ "$stderr" == *":11: kernel k, block 0,0,0, thread 100: reads 4 bytes at 0x"*"0 bytes behind the end of an allocation"* ]]
	[[ "$stderr" == *":12: kernel k, block 0,0,0, thread 100: writes 4 bytes"* ]]
	[[ "$stderr" == *"3 faults found"* ]]
	run "$GBPF" run --check --device nvidia ./kernels
	[ "$status" -eq 125 ]

}

@test "GBPF_SOFT_LOG gives the reason why an image was refused, to programs that give no buffer for it" {
	cat >bad.c <<-'END'
		int cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuModuleLoadData(void **, const void *);
		int main(void)
		{
			void *c, *m;
			cuInit(0);
			cuCtxCreate_v2(&c, 0, 0);
			return cuModuleLoadData(&m, ".version 7.0\n.target sm_70\n.address_size 64\n"
				".entry k()\n{\n.reg .b32 %r;\nadd.u32 %r, %other, 1;\nret;\n}\n") != 218;
		}
	END
	gcc -o bad bad.c -L"$GBPF_PREFIX/lib/gbpf/soft" -l:libcuda.so.1
	run "$GBPF" run --device soft ./bad
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	GBPF_SOFT_LOG=- run "$GBPF" run --device soft ./bad
	echo "$output"
	[[ "$output" == "gbpf soft GPU: ptx:7: add.u32 %r, %other, 1: %other is not declared"* ]]
	GBPF_SOFT_LOG=- run "$GBPF" run --device soft --class batch ./bad # with twins and without
	[ "$(grep -c "is not declared" <<<"$output")" -eq 1 ]
}

@test "of a refused image a batch program reads the same as any other, with its own name and lines" {
	printf '.version 7.0\n.target sm_70\n.address_size 64\n.entry k()\n{\n.reg .b32 %%r;\nadd.u32 %%r, %%other, 1;\nret;\n}\n' >bad.ptx
	sed 's/%other/%r/' bad.ptx >good.ptx
	cat >load.c <<-'END'
		#include <stdio.h>
		#include <string.h>
		int cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuModuleLoad(void **, const char *);
		int cuModuleLoadDataEx(void **, const void *, unsigned, int *, void **);
		int main(void)
		{
			char text[2][999] = { "" }, *name[2] = { "bad.ptx", "good.ptx" };
			void *c, *m;
			cuInit(0);
			cuCtxCreate_v2(&c, 0, 0);
			for (int i = 0; i < 2; i++) {
				char error[99] = "as before", info[999] = "as before";
				int options[] = { 6, 4, 5, 12, 3 }; /* sizes and buffers of both logs, verbose */
				void *values[] = { (void *)99, (void *)999, error, (void *)1, info };
				FILE *f = fopen(name[i], "r");
				fread(text[i], 1, 998, f);
				printf("%d", cuModuleLoad(&m, name[i]));
				printf(" %d", cuModuleLoadDataEx(&m, text[i], 5, options, values));
				printf(" '%s' %d %s\n", error, values[0] == (void *)strlen(error), *info ? "told" : "");
			}
			return 0;
		}
	END
	gcc -o load load.c -L"$GBPF_PREFIX/lib/gbpf/soft" -l:libcuda.so.1
	GBPF_SOFT_LOG=log run "$GBPF" run --device soft ./load
	echo "$output" && cat log
	[[ "${lines[0]}" == "218 218 'ptx:7: add.u32 %r, %other, 1: %other is not declared"*"' 1 "* ]]
	[[ "${lines[1]}" == "0 0 '' 1 "* ]]
	[[ "$(<log)" == "gbpf soft GPU: bad.ptx:7: "* ]]
	mv log plain && plain=$output
	GBPF_SOFT_LOG=log run "$GBPF" run --device soft --class batch ./load
	echo "$output"
	[ "$output" = "$plain" ]
	diff plain log
}

@test "programs of the runtime library get one message that they do not run" {
	cat >runtime.py <<-'END'
		import ctypes
		n = ctypes.CDLL('libcuda.so.1')
		table, id = ctypes.c_void_p(), (ctypes.c_ubyte * 16)(*bytes.fromhex('6bd5fb6c5bf4e74a8987d93912fd9df9'))
		n.cuInit(0)
		assert [n.cuGetExportTable(ctypes.byref(table), id) for i in range(3)] == [801] * 3
	END
	run "$GBPF" run --device soft python3 runtime.py
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 1 ]
	[[ "$output" == *"libcudart"*"driver API"* ]]
}

@test "gbpf-softgpu says what an option takes" {
	for wrong in "--gpus 9:1 to 8" "--mem 5X:1M to 32G" "--nosuch:--help" "more:--help"; do
		run "$GBPF_PREFIX/bin/gbpf-softgpu" ${wrong%:*}
		echo "$output"
		[ "$status" -eq 2 ]
		[[ "$output" == *"${wrong#*:}"* ]]
	done
}

@test "device --unsupported --pid does not say of a stranger that all is well" {
	program
	"$GBPF" run --device soft ./kernels
	run "$GBPF" device --unsupported --pid $$
	[[ "$output" == *"is not on the soft GPU"* ]]
}

@test "a fault is reported with line, block and thread, and --check counts it" {
	cat >odd.c <<-'END'
		typedef unsigned long long ptr;
		int cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuModuleLoadData(void **, const void *);
		int cuModuleGetFunction(void **, void *, const char *), cuMemAlloc_v2(ptr *, unsigned long), cuCtxSynchronize(void);
		int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
				   void **);
		int main(void)
		{
			void *c, *m, *f;
			ptr p;
			void *params[] = { &p };
			cuInit(0);
			cuCtxCreate_v2(&c, 0, 0);
			cuModuleLoadData(&m, ".version 7.0\n.target sm_70\n.address_size 64\n.entry k(.param .u64 p)\n{\n"
				".reg .b64 %a;\nld.param.u64 %a, [p];\nst.global.u32 [%a+2], 1;\nret;\n}\n");
			cuModuleGetFunction(&f, m, "k");
			cuMemAlloc_v2(&p, 64);
			cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, params, 0);
			return cuCtxSynchronize() != 716;
		}
	END
	gcc -o odd odd.c -L"$GBPF_PREFIX/lib/gbpf/soft" -l:libcuda.so.1
	for i in 1 2 3 4 5 6 7 8; do # the program ends right after it saw the error
		GBPF_SOFT_LOG=- run "$GBPF" run --device soft ./odd
		echo "$output"
		[ "$status" -eq 0 ]
		[[ "$output" == "gbpf soft GPU: kernel k, PTX line 8, block 0,0,0, thread 0: misaligned access (address 0x"* ]]
	done
	run "$GBPF" run --check ./odd
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"PTX line 8, block 0,0,0, thread 0: misaligned"*"1 fault found"* ]]
}

# What has a label of a program is the program's until its scope or function ends; the rest is the kernel's.
@test "a fault in an inserted program is reported as the program's, with its instruction" {
	cat >form.ptx <<-'PTX'
		.version 7.0
		.target sm_70
		.address_size 64
		.func part(.param .b64 a)
		{
			.reg .b64 %a;
			.reg .b32 %v;
		$program$called:
			ld.param.u64 %a, [a];
		$L4:
			ld.global.u32 %v, [%a+4];
			ret;
		}
		.visible .entry k(.param .u64 p)
		{
			.reg .b64 %a;
			.reg .b32 %v;
			ld.param.u64 %a, [p];
			{
			$program$count:
				ld.global.u32 %v, [%a];
			$L17:
				ld.global.u32 %v, [%a+12];
			$Lx:
				ld.global.u32 %v, [%a+16];
			}
			{
			.param .b64 q;
			st.param.b64 [q], %a;
			call part, (q);
			}
		$L20:
			ld.global.u32 %v, [%a+8];
			st.global.u32 [%a+64], %v;
			ret;
		}
	PTX
	cat >form.c <<-'END'
		typedef unsigned long long ptr;
		int cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuModuleLoad(void **, const char *);
		int cuModuleGetFunction(void **, void *, const char *), cuMemAlloc_v2(ptr *, unsigned long), cuCtxSynchronize(void);
		int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
				   void **);
		int main(int argc, char **argv)
		{
			void *c, *m, *f;
			ptr p;
			void *params[] = { &p };
			if (cuInit(0) || cuCtxCreate_v2(&c, 0, 0) || cuModuleLoad(&m, argv[1]) || cuModuleGetFunction(&f, m, argv[2]) ||
			    cuMemAlloc_v2(&p, 64)) {
				return 2;
			}
			return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, params, 0) || cuCtxSynchronize();
		}
	END
	gcc -o form form.c -L"$GBPF_PREFIX/lib/gbpf/soft" -l:libcuda.so.1
	run --separate-stderr "$GBPF" run --check ./form form.ptx k
	echo "$stderr"
	[[ "$stderr" == *":21: kernel k, program count, block 0,0,0"*"reads 4 bytes"* ]]
	[[ "$stderr" == *":23: kernel k, program count, instruction 17, block"* ]]
	[[ "$stderr" == *":25: kernel k, program count, instruction 17, block"* ]]
	[[ "$stderr" == *":11: kernel k, program called, instruction 4, block"* ]]
	[[ "$stderr" == *":33: kernel k, block"*"reads 4 bytes"* ]]
	[[ "$stderr" == *":34: kernel k, block"*"behind the end"* ]]
	[[ "$stderr" == *"6 faults found"* ]]
	# A form whose table of addresses nothing has filled in: the program stores at address 0.
	test_policies .
	printf '.version 6.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\nret;\n}\n' >k.ptx
	"$GBPF" probe rewrite k.ptx blocks.bpf.o >made.ptx
	GBPF_SOFT_LOG=- run "$GBPF" run --device soft ./form made.ptx k
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" =~ "kernel k, program count, instruction "[0-9]+", PTX line "[0-9]+", block 0,0,0, thread 0: access outside valid global memory (address 0x0)" ]]
}
