/* Exponential, logarithm, sine and cosine whose bits are the same everywhere: additions, multiplications
 * and divisions of doubles in a fixed order, within some units of the last place. */
#pragma once

double oct_real_exp(double x); /* 0 and infinity where the result leaves the doubles */
double oct_real_log(double x); /* x > 0, finite */
void oct_real_sin_cos(double x, double *sine, double *cosine); /* |x| up to 1e6 */
