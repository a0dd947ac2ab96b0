// SPDX-License-Identifier: Apache-2.0
#include "examples/cli/cli.h"

int main(int argc, char** argv) { return heed::main(argc, argv); }
