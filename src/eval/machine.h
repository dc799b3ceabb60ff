// What the report says about the machine and the program.
#pragma once

#include "eval/eval_record.h"

namespace trefoil {

// CPU name, instruction set in use, threads, operating system.
Facts describe_machine(int threads);

// "0.1.0"
std::string program_version();

}  // namespace trefoil
