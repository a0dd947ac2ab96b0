// SPDX-License-Identifier: Apache-2.0
// `meson install` gives what a user's own program needs: it is compiled with pkg-config against an installed copy.
#include <doctest/doctest.h>

#include "tensor/file.h"
#include "tests/run_program.h"
#include "tests/temporary_folder.h"

TEST_CASE("an installed copy serves a program of ten lines") {
  const TemporaryFolder folder;
  const std::string root = folder.path();
  const Ran installed = run_program("DESTDIR='" + root + "' meson install -C '" HEED_BUILD_DIR "' --no-rebuild --quiet 2>&1");
  INFO(installed.output);
  REQUIRE(installed.exit_code == 0);
  const std::string find_pc = run_program("dirname \"$(find '" + root + "' -name heed.pc)\"").output;
  const std::string pc = find_pc.substr(0, find_pc.find('\n'));
  heed::write_file_atomically(root + "/consumer.cc", R"(#include <autograd/ops.h>
#include <autograd/tape.h>
#include <cstdio>
int main() {
  const heed::Variable x = heed::variable(heed::tensor({1, 2, 3}));
  heed::Tape tape;
  const heed::Variable y = heed::sum(x * x);
  tape.backward(y);
  std::printf("%g %g\n", y.value().item(), x.grad()[2].item());
}
)");
  const std::string flags =
      "$(PKG_CONFIG_PATH='" + pc + "' PKG_CONFIG_SYSROOT_DIR='" + root + "' pkg-config --static --cflags --libs heed)";
  const Ran built = run_program("cd '" + root + "' && " HEED_COMPILER " -std=c++20 consumer.cc -o consumer $(echo " + flags + " | sed 's#" +
                                root + root + "#" + root + "#g') 2>&1");
  INFO(built.output);
  REQUIRE(built.exit_code == 0);
  CHECK(run_program("'" + root + "/consumer'").output == "14 6\n");
}
