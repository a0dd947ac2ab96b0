// SPDX-License-Identifier: Apache-2.0
#include "tests/op_table.h"

namespace {

std::vector<Row>& table() {
  static std::vector<Row> rows;
  return rows;
}

}  // namespace

InTable::InTable(std::initializer_list<Row> rows) { table().insert(table().end(), rows); }

const std::vector<Row>& all_rows() { return table(); }

const Row* row_of(const heed::Sample& sample) {
  const Row* found = nullptr;
  for (const Row& row : table()) {
    if (row.name == sample.name) return &row;
    if (row.name == sample.function()) found = &row;
  }
  return found;
}
