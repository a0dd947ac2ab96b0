// SPDX-License-Identifier: Apache-2.0
#include "nn/checkpoint.h"

#include <algorithm>
#include <set>

#include "tensor/format.h"

namespace heed {
namespace {

// All names of the selected parameters without the prefix, aliases included.
std::map<std::string, Parameter::Data*> names(const Selection& parameters) {
  const std::string& prefix = parameters.prefix();
  std::map<std::string, Parameter::Data*> out;
  std::map<std::string, Parameter::Data*> by_path;
  for (const auto& item : parameters) by_path[item->path] = item.get();
  for (const auto& [path, item] : by_path) out[path.substr(prefix.size())] = item;
  for (const auto& [alias, path] : parameters.owner().aliases())
    if (const auto at = by_path.find(path); at != by_path.end() && alias.starts_with(prefix)) out[alias.substr(prefix.size())] = at->second;
  return out;
}

bool same_values(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  if (a.storage() == b.storage() && a.offset() == b.offset()) return true;
  return visit_any(a.dtype(), [&]<class T>() { return a.contiguous().to_vector<T>() == b.contiguous().to_vector<T>(); });
}

}  // namespace

std::map<std::string, Tensor> state(const Selection& parameters) {
  std::map<std::string, Tensor> out;
  for (const auto& [name, item] : names(parameters)) out[name] = item->variable.value();
  return out;
}

void load(const Selection& parameters, const std::map<std::string, Tensor>& values, std::string_view source) {
  const auto wanted = names(parameters);
  std::string missing, unexpected, mismatched;
  std::map<const Parameter::Data*, std::string> given;   // first name under which a parameter's value came
  std::vector<std::pair<Parameter::Data*, Tensor>> copies;
  for (const auto& [name, item] : wanted) {
    const auto at = values.find(name);
    if (at == values.end()) continue;
    const Variable& have = item->variable;
    if (at->second.shape() != have.shape() || at->second.dtype() != have.dtype()) {
      mismatched += fmt::format(" {} ({} {}, needs {} {})", name, at->second.dtype(), at->second.shape(), have.dtype(), have.shape());
    } else if (const auto [other, first] = given.emplace(item, name); first) {
      copies.emplace_back(item, at->second);
    } else if (!same_values(values.at(other->second), at->second)) {
      mismatched += fmt::format(" {} (tied to {} but different)", name, other->second);
    }
  }
  for (const auto& [name, item] : wanted)
    if (!values.contains(name) && !given.contains(item) && item->path == parameters.prefix() + name) missing += " " + name;
  for (const auto& [name, value] : values)
    if (!wanted.contains(name)) unexpected += " " + name;
  const auto part = [](std::string_view what, const std::string& list) { return list.empty() ? std::string() : fmt::format("; {}:{}", what, list); };
  check<FileError>(missing.empty() && unexpected.empty() && mismatched.empty(), "{}: does not fit the model{}{}{}", source, part("missing", missing),
                   part("unexpected", unexpected), part("mismatched", mismatched));
  for (auto& [item, value] : copies) copy_into(item->variable.value(), value);
}

void save(const Selection& parameters, const std::string& path) { write_safetensors(path, state(parameters)); }

void load(const Selection& parameters, const std::string& path) { load(parameters, read_safetensors(path).tensors, path); }

}  // namespace heed
