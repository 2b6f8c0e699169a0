"""Assembler text of exported names that are jumps through a table of slots, for gen-shim and gen-nvml.

Before the real library is loaded, each slot leads to a stub that calls a C function with the slot's index and jumps to the address
that it returns. All registers that carry arguments survive, so no signature is needed."""
SAVED = ["rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10"]
VECTORS = 8  # xmm0 to xmm7 carry arguments


def jump(name, table, index):
    """An exported name."""
    yield f"\t.globl {name}\n\t.type {name}, @function\n{name}:\n\tjmp *{table}+{8 * index}(%rip)\n\t.size {name}, .-{name}"


def stubs(count, resolve):
    """The stubs first_0, first_1, ...; resolve: the C function, void *resolve(unsigned index)."""
    yield "\t.p2align 4"
    for i in range(count):
        yield f"first_{i}:\n\tpushq ${i}\n\tjmp resolve"
    yield "resolve:"
    for r in SAVED:
        yield f"\tpushq %{r}"
    yield f"\tsubq ${16 * VECTORS}, %rsp"
    for i in range(VECTORS):
        yield f"\tmovups %xmm{i}, {16 * i}(%rsp)"
    yield f"\tmovl {16 * VECTORS + 8 * len(SAVED)}(%rsp), %edi\n\tcall {resolve}\n\tmovq %rax, %r11"
    for i in range(VECTORS):
        yield f"\tmovups {16 * i}(%rsp), %xmm{i}"
    yield f"\taddq ${16 * VECTORS}, %rsp"
    for r in reversed(SAVED):
        yield f"\tpopq %{r}"
    yield "\taddq $8, %rsp\n\tjmp *%r11"


def table(name, count):
    """A table of slots, which lead to the stubs."""
    yield f"\t.globl {name}\n\t.hidden {name}\n\t.type {name}, @object\n{name}:"
    for i in range(count):
        yield f"\t.quad first_{i}"
    yield f"\t.size {name}, {8 * count}"
