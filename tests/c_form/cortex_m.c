/* A Cortex-M begins here: the vector table of a board without an operating system, which hands over to newlib. */
#include <stdint.h>

extern void _start(void);
extern char stack_top[];
void reset(void);

void reset(void)
{
#ifdef __ARM_FP
    *(volatile uint32_t *)0xE000ED88u |= 0xFu
                                         << 20; /* CPACR: the floating-point unit may be used */
    __asm__ volatile("dsb\n isb");
#endif
    _start();
    for (;;) {
    }
}

typedef union vector {
    char *stack;
    void (*handler)(void);
} vector;

__attribute__((section(".vectors"), used)) static const vector vectors[] = {
    {.stack = stack_top}, {.handler = reset}, {.handler = reset}, {.handler = reset}};
