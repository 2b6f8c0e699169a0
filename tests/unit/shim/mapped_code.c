/* A library with machine code in its read-only data, as those of CUDA have it. */
extern const unsigned char mapped_code[], mapped_code_end[];
const unsigned char *mapped_code_begin(void);
unsigned long mapped_code_bytes(void);

__asm__(".section .rodata\n.balign 64\n.globl mapped_code\nmapped_code:\n.incbin \"" IMAGE "\"\n"
	".globl mapped_code_end\nmapped_code_end:\n.previous\n"
	".hidden mapped_code\n.hidden mapped_code_end\n");

#define PUBLIC __attribute__((visibility("default")))

PUBLIC const unsigned char *mapped_code_begin(void)
{
	return mapped_code;
}

PUBLIC unsigned long mapped_code_bytes(void)
{
	return (unsigned long)(mapped_code_end - mapped_code);
}
