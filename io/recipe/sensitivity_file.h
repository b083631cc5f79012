/* Sensitivity tables as text files, for people, for other programs and for quant.sensitivity:
 *
 *     # octet sensitivity 1
 *     # any comment
 *     layer1.0.conv1  activation  21.62  0.9965  0.0131
 *
 * One row a quantizer, the most sensitive first: path of the module, activation or weight, SQNR in dB
 * ("inf": no difference), cosine, change of the loss.
 */
#pragma once

#include "core/base/text.h"
#include "quant/module/qconfig.h"

/* Prints a table below a comment (lines without '#', or NULL). Numbers are rounded for people, to 4, 8 and 6 decimals. */
oct_status oct_sensitivity_print(const oct_sensitivity *table, const char *comment, oct_text *out);
/* Reads a table strictly; OCT_DATA with the file's line and the remedy. The table is then empty. */
oct_status oct_sensitivity_read(oct_sensitivity *table, const char *path);
/* Does the file begin as a table? OCT_RESOURCE where memory lacks. */
oct_status oct_sensitivity_is(const char *path, bool *is_table);
void oct_sensitivity_free(oct_sensitivity *table);
