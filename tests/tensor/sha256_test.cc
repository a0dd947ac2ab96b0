// SPDX-License-Identifier: Apache-2.0
#include "tensor/sha256.h"

#include <doctest/doctest.h>

using namespace heed;

TEST_CASE("sha256: examples of FIPS 180 and every case of padding") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  const struct { std::size_t n; const char* hash;
  } rows[] = {{55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
              {56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
              {63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
              {64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
              {65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
              {119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb"},
              {120, "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c"},
              {1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
  for (const auto& row : rows) CHECK(sha256(std::string(row.n, 'a')) == row.hash);
}

TEST_CASE("sha256: the pieces do not matter") {
  Sha256 hash;
  const std::string text(1000, 'a');
  for (std::size_t i = 0, n = 1; i < text.size(); i += n, n = n * 3 % 131) hash.update(std::string_view(text).substr(i, n));
  CHECK(hexadecimal(hash.digest()) == sha256(text));
  CHECK(hexadecimal(hash.digest()) == sha256(text));       // asking changes nothing
}
