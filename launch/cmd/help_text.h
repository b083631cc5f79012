/* Texts of `octet help`, made from the lists they describe. */
#pragma once

#include "core/base/text.h"
#include "launch/cmd/command.h"

oct_status oct_help_overview(oct_text *out) OCT_NODISCARD;
oct_status oct_help_command(const oct_command *command, oct_text *out) OCT_NODISCARD;
