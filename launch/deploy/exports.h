/* Which formats an int8 model will have, found out before it is trained. */
#pragma once

#include "io/recipe/recipe.h"
#include "quant/program/program.h"

/* Adds a problem to the record where export.formats names no formats of int8 models. */
void oct_check_exports(const oct_recipe *recipe);
/* Gives the names of formats that have a form for each step, with commas between them, then a line for each other one
 * with its reason. Forms that depend on scales alone are not foreseen. OCT_PREPARE with the reason of each that
 * export.formats demands. */
oct_status oct_exports_of(const oct_recipe *recipe, const oct_program *program,
                          oct_text *text) OCT_NODISCARD;
