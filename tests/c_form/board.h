/* What compare.c needs of the machine that it runs on: host.c on an ordinary one, cortex_m.c on a microcontroller. */
#include <stddef.h>

/* Reads as many bytes of standard input; returns 0 where it ends before. */
int board_read(void *to, size_t bytes);

/* How far the stack has reached since it was watched, in bytes; 0 where the board cannot measure it. */
void board_watch_stack(void);
size_t board_stack(void);

/* Writes as many characters to standard output. */
void board_write(const char *text, size_t bytes);
