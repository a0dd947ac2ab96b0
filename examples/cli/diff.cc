// SPDX-License-Identifier: Apache-2.0
// `heed diff`: where two traces, or any two .safetensors, part.
#include <cmath>

#include "examples/cli/model.h"
#include "models/drawing.h"
#include "models/text.h"
#include "tensor/format.h"
#include "tensor/json.h"
#include "tensor/safetensors.h"

namespace heed::cli {
namespace {

struct Difference {
  Index element = 0;
  long double a = 0, b = 0;                        // which holds every i64
  double size() const { return std::isnan(a) == std::isnan(b) ? (std::isnan(a) || a == b ? 0 : double(std::abs(a - b))) : INFINITY; }
};

// The position of an element: "[0, 3, 17]".
std::string position(const Shape& shape, Index element) {
  std::vector<Index> at(std::size_t(shape.rank()));
  for (int dim = shape.rank() - 1; dim >= 0; --dim) {
    at[std::size_t(dim)] = element % shape[dim];
    element /= shape[dim];
  }
  return fmt::format("[{}]", fmt::join(at, ", "));
}

struct Held {
  std::string_view dtype;
  Shape shape;
  Tensor value;                                    // bytes where Heed does not compute with the dtype
  bool bytes = false;
};

std::map<std::string, Held> all_of(const SafetensorsFile& file) {
  std::map<std::string, Held> held;
  for (const auto& [name, value] : file.tensors) held.emplace(name, Held{heed::name(value.dtype()), value.shape(), value});
  for (const auto& [name, other] : file.others) held.emplace(name, Held{other.stored_as, other.shape, other.bytes, true});
  return held;
}

// Names in the order in which they were computed where the file says so, else by name.
std::vector<std::string> names_in_order(const SafetensorsFile& file, const std::map<std::string, Held>& held) {
  std::vector<std::string> names;
  if (const auto order = file.metadata.find(std::string(kTraceOrder)); order != file.metadata.end()) {
    const auto json = parse_json(order->second);
    if (json.is_array())
      for (const auto& item : json)
        if (item.is_array() && !item.empty() && item[0].is_string() && held.contains(item[0].get<std::string>()))
          names.push_back(item[0].get<std::string>());
  }
  for (const auto& [name, value] : held)
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  return names;
}

bool is_checkpoint(const SafetensorsFile& file) {
  return std::ranges::any_of(file.tensors, [](const auto& item) { return item.first.starts_with(kModelPrefix); });
}

struct Compared {
  std::optional<Difference> first, largest;
  Index different = 0;                             // elements
};

template <class T> Compared compare_as(DType dtype, const Tensor& x, const Tensor& y, double tolerance) {
  const std::vector<T> a = to(x, dtype).contiguous().to_vector<T>(), b = to(y, dtype).contiguous().to_vector<T>();
  Compared out;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Difference d{Index(i), (long double)a[i], (long double)b[i]};
    if (d.size() <= tolerance) continue;
    ++out.different;
    if (!out.first) out.first = d;
    if (!out.largest || d.size() > out.largest->size()) out.largest = d;
  }
  return out;
}

Compared compare(const Tensor& x, const Tensor& y, double tolerance) {
  return x.dtype() == DType::i64 ? compare_as<std::int64_t>(DType::i64, x, y, tolerance) : compare_as<double>(DType::f64, x, y, tolerance);
}

// What two files differ in.
struct Differences {
  std::vector<std::string> unmatched, other_bytes;
  std::optional<std::string> first, largest;
  Index compared = 0, different = 0, elements = 0; // tensors; tensors; elements of those compared
  Json list = Json::array();
  bool none() const { return different == 0 && unmatched.empty(); }
};

std::string sentence(const std::string& name, const Difference& d, const Held& of) {
  const int digits = of.dtype == heed::name(DType::i64) ? 19 : 9;
  return fmt::format("{} {}: {:.{}g} and {:.{}g}, {:.3g} apart", name, position(of.shape, d.element), d.a, digits, d.b, digits, d.size());
}

Differences differences(const std::string& a, const SafetensorsFile& x, const std::string& b, const SafetensorsFile& y, double tolerance) {
  const std::map<std::string, Held> in_x = all_of(x), in_y = all_of(y);
  Differences out;
  double largest_size = -1;
  for (const std::string& name : names_in_order(x, in_x)) {
    if (!in_y.contains(name)) {
      out.unmatched.push_back(fmt::format("only in {}: {}", a, name));
      continue;
    }
    const Held &left = in_x.at(name), &right = in_y.at(name);
    if (left.shape != right.shape || left.dtype != right.dtype) {
      out.unmatched.push_back(fmt::format("{}: {} {} and {} {}", name, left.dtype, left.shape, right.dtype, right.shape));
      continue;
    }
    ++out.compared;
    out.elements += left.shape.numel();
    const Compared found = compare(left.value, right.value, left.bytes ? 0 : tolerance);
    if (!found.first) continue;
    ++out.different;
    if (left.bytes) {
      out.other_bytes.push_back(
          fmt::format("{}: {} {}: {} of {} bytes differ", name, left.dtype, left.shape, found.different, left.value.numel()));
      out.list.push_back({{"name", name}, {"different", nullptr}, {"elements", left.shape.numel()}, {"largest", nullptr}});
      continue;
    }
    const double size = found.largest->size();
    if (!out.first) out.first = sentence(name, *found.first, left);
    if (size > largest_size) largest_size = size, out.largest = sentence(name, *found.largest, left);
    out.list.push_back({{"name", name}, {"different", found.different}, {"elements", left.shape.numel()}, {"largest", size}});
  }
  for (const auto& [name, value] : in_y)
    if (!in_x.contains(name)) out.unmatched.push_back(fmt::format("only in {}: {}", b, name));
  return out;
}

}  // namespace

int diff(std::span<const std::string> words) {
  Manner manner;
  std::string a, b;
  double tolerance = 0;
  const Syntax syntax{.command = "diff",
                      .usage = "A B [--tolerance X]     each a run, a checkpoint, or any .safetensors",
                      .about = "The first and the largest difference of two files of tensors: of traces in the order of computation, else by name. Beside a file of weights, of a checkpoint only its weights count. The exit code is 1 where they differ.",
                      .example = "heed diff before.safetensors after.safetensors",
                      .options = std::vector<Option>{
                          {.name = "tolerance", .value = &tolerance, .takes = "X",
                           .help = "differences up to X count as none", .low = 0, .high = 1e300, .standard = "0", .heading = "Comparison"}
                      } + options(manner),
                      .words = {{"A", &a}, {"B", &b}}};
  if (!parse(syntax, words)) return 0;
  a = weights_file(a), b = weights_file(b);
  SafetensorsFile x = read_safetensors(a), y = read_safetensors(b);
  if (is_checkpoint(x) != is_checkpoint(y)) x = read_weights(a), y = read_weights(b);
  const Differences d = differences(a, x, b, y, tolerance);
  if (manner.json) {
    print(json_text(Json{{"same", d.none()},
                         {"tensors", d.compared},
                         {"unmatched", d.unmatched},
                         {"first", d.first ? Json(*d.first) : nullptr},
                         {"largest", d.largest ? Json(*d.largest) : nullptr},
                         {"differences", d.list}}) +
          "\n");
    return d.none() ? 0 : 1;
  }
  for (const std::string& line : d.unmatched) print(drawing::printable(line) + "\n");
  for (const std::string& line : d.other_bytes) print(drawing::printable(line) + "\n");
  if (d.first) print(drawing::printable(fmt::format("first    {}", *d.first)) + "\n");
  if (d.largest) print(drawing::printable(fmt::format("largest  {}", *d.largest)) + "\n");
  if (!d.unmatched.empty())
    print(fmt::format("{} without one of the same name, shape and type in the other file; of the {} compared {}\n",
                      counted(Index(d.unmatched.size()), "tensor"), d.compared,
                      d.different > 0 ? fmt::format("{} differ", d.different)
                      : tolerance > 0 ? fmt::format("none differs by more than {:g}", tolerance)
                                      : "none differs"));
  else if (d.different == 0)
    print(fmt::format("{}, {}: {}\n", counted(d.compared, "tensor"), counted(d.elements, "number"),
                      tolerance > 0 ? fmt::format("no difference above {:g}", tolerance) : "the same"));
  else print(fmt::format("{} of {} differ\n", d.different, counted(d.compared, "tensor")));
  return d.none() ? 0 : 1;
}

}  // namespace heed::cli
