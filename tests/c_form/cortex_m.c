/* A Cortex-M without operating system and without C library begins here: its vector table, its memory, the four
 * functions that a compiler may call, and files of the machine that watches it, by semihosting: a call is a breakpoint
 * with its number in r0 and its words in r1 ("Semihosting for AArch32 and AArch64", Arm, 2.0). */
#include "board.h"

#include <stdint.h>

enum call { SYS_OPEN = 0x01, SYS_WRITE = 0x05, SYS_READ = 0x06, SYS_EXIT = 0x18 };
enum mode { READ_BYTES = 1, WRITE_BYTES = 5 };
enum { APPLICATION_EXIT = 0x20026, RUN_TIME_ERROR = 0x20023 };

extern char stack_top[], data_begin[], data_end[], data_source[], bss_begin[], bss_end[];
int main(void);
void reset(void);
void fault(void);
void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int byte, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);

/* A compiler would make a call of the function itself of such a loop. */
#define PLAIN_LOOPS __attribute__((optimize("no-tree-loop-distribute-patterns")))

PLAIN_LOOPS void *memcpy(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((char *)to)[i] = ((const char *)from)[i];
    return to;
}

PLAIN_LOOPS void *memmove(void *to, const void *from, size_t bytes)
{
    if ((uintptr_t)to <= (uintptr_t)from) return memcpy(to, from, bytes);
    for (size_t i = bytes; i > 0; i--)
        ((char *)to)[i - 1] = ((const char *)from)[i - 1];
    return to;
}

PLAIN_LOOPS void *memset(void *to, int byte, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((char *)to)[i] = (char)byte;
    return to;
}

PLAIN_LOOPS int memcmp(const void *a, const void *b, size_t bytes)
{
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < bytes; i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}

static uint32_t semihost(uint32_t call, uint32_t word)
{
    register uint32_t r0 __asm__("r0") = call;
    register uint32_t r1 __asm__("r1") = word;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static uint32_t call3(uint32_t call, uint32_t a, uint32_t b, uint32_t c)
{
    const uint32_t words[3] = {a, b, c};
    return semihost(call, (uint32_t)(uintptr_t)words);
}

static uint32_t file(const char *path, uint32_t length, enum mode mode)
{
    return call3(SYS_OPEN, (uint32_t)(uintptr_t)path, mode, length);
}

int board_read(void *to, size_t bytes)
{
    static char buffer[16384];
    static size_t at, filled;
    static uint32_t in;
    if (!in) in = file("/dev/stdin", 10, READ_BYTES);
    for (size_t i = 0; i < bytes; i++) {
        if (at == filled) {
            at = 0; /* SYS_READ returns how many bytes it left out */
            filled =
                sizeof buffer - call3(SYS_READ, in, (uint32_t)(uintptr_t)buffer, sizeof buffer);
            if (filled == 0) return 0;
        }
        ((char *)to)[i] = buffer[at++];
    }
    return 1;
}

void board_write(const char *text, size_t bytes)
{
    static uint32_t out;
    if (!out) out = file(":tt", 3, WRITE_BYTES);
    call3(SYS_WRITE, out, (uint32_t)(uintptr_t)text, (uint32_t)bytes);
}

/* Words of the stack that nothing has written to since hold this. */
enum { UNTOUCHED = 0x5AC3A53C, STACK = 64 * 1024 };
static uint32_t *watched;

void board_watch_stack(void)
{
    watched = __builtin_frame_address(0);
    for (volatile uint32_t *at = (uint32_t *)(void *)(stack_top - STACK); at < watched - 16; at++)
        *at = UNTOUCHED;
}

size_t board_stack(void)
{
    const volatile uint32_t *at = (uint32_t *)(void *)(stack_top - STACK);
    while (at < watched && *at == UNTOUCHED)
        at++;
    return (size_t)((const char *)watched - (const volatile char *)at);
}

void fault(void)
{
    for (;;)
        semihost(SYS_EXIT, RUN_TIME_ERROR);
}

void reset(void)
{
#ifdef __ARM_FP
    *(volatile uint32_t *)0xE000ED88u |= 0xFu
                                         << 20; /* CPACR: the floating-point unit may be used */
    __asm__ volatile("dsb\n isb" ::: "memory");
#endif
    memcpy(data_begin, data_source, (size_t)(data_end - data_begin));
    memset(bss_begin, 0, (size_t)(bss_end - bss_begin));
    if (main() != 0) fault();
    for (;;)
        semihost(SYS_EXIT, APPLICATION_EXIT);
}

typedef union vector {
    char *stack;
    void (*handler)(void);
} vector;

/* Stack, reset, NMI, and the faults: hard, of memory, of the bus, of usage. */
__attribute__((section(".vectors"), used)) static const vector vectors[] = {
    {.stack = stack_top}, {.handler = reset}, {.handler = fault}, {.handler = fault},
    {.handler = fault},   {.handler = fault}, {.handler = fault}};
