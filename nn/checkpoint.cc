// SPDX-License-Identifier: Apache-2.0
#include "nn/checkpoint.h"

#include <algorithm>
#include <optional>
#include <set>

#include "tensor/format.h"
#include "tensor/into.h"

namespace heed {
namespace {

// All names of the selected parameters without the prefix, aliases included.
std::map<std::string, Parameter::Data*> names(const Selection& parameters) {
  const std::string& prefix = parameters.prefix();
  std::map<std::string, Parameter::Data*> out;
  std::map<std::string, Parameter::Data*> by_path;
  for (const auto& item : parameters) by_path[item->path] = item.get();
  for (const auto& [path, item] : by_path)
    if (path.starts_with(prefix)) out[path.substr(prefix.size())] = item;
  for (const auto& [alias, path] : parameters.owner().aliases())
    if (const auto at = by_path.find(path); at != by_path.end() && alias.starts_with(prefix)) out[alias.substr(prefix.size())] = at->second;
  return out;
}

using Metadata = std::map<std::string, std::string>;
constexpr std::string_view kFormKey = "gru_form.";

// GRUs whose form in a file is not the model's.
std::vector<std::string> other_forms(const Metadata& wanted, const Metadata& metadata) {
  const auto form = [](const Metadata& side, const std::string& key) { return side.contains(key) ? side.at(key) : std::string("cudnn"); };
  std::set<std::string> keys;
  for (const Metadata* side : {&wanted, &metadata})
    for (const auto& [key, value] : *side)
      if (key.starts_with(kFormKey)) keys.insert(key);
  std::vector<std::string> list;
  for (const std::string& key : keys)
    if (form(metadata, key) != form(wanted, key))
      list.push_back(fmt::format("{} ({}{}, needs {})", key, form(metadata, key),
                                 metadata.contains(key) ? "" : ", as the file does not say", form(wanted, key)));
  return list;
}

// "; all that is missing is there under .." where the unexpected ones have it under one prefix
std::string where_missing(const std::vector<std::string>& missing, const std::vector<std::string>& unexpected) {
  std::vector<std::string> prefixes;
  for (const std::string& other : unexpected) {
    if (missing.empty() || !other.ends_with("." + missing[0])) continue;
    const std::string prefix = other.substr(0, other.size() - missing[0].size());
    const auto is_there = [&](const std::string& name) { return std::ranges::find(unexpected, prefix + name) != unexpected.end(); };
    if (std::ranges::all_of(missing, is_there)) prefixes.push_back(prefix);
  }
  return prefixes.size() == 1 ? fmt::format("; all that is missing is there under {}: LoadOptions::from", quote(prefixes[0])) : "";
}

using Others = std::map<std::string, OtherTensor>;

// formed: what is wrong with forms.
Loaded copy_all(const Selection& parameters, const std::map<std::string, Tensor>& values, const Others& others, std::string_view source,
                const std::vector<std::string>& formed, bool partial = false) {
  const auto wanted = names(parameters);
  std::vector<std::string> missing, unexpected, mismatched;
  std::map<const Parameter::Data*, std::string> given;   // first name under which a parameter's value came
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (const auto& [name, item] : wanted) {
    const auto at = values.find(name);
    if (at == values.end()) continue;
    const Variable& have = item->variable;
    if (!at->second.defined()) {
      mismatched.push_back(fmt::format("{} (an empty Tensor, needs {} {})", name, have.dtype(), have.shape()));
    } else if (at->second.shape() != have.shape() || at->second.dtype() != have.dtype()) {
      mismatched.push_back(fmt::format("{} ({} {}, needs {} {}{})", name, at->second.dtype(), at->second.shape(), have.dtype(),
                                       have.shape(),
                                       at->second.shape() == have.shape() &&
                                               (is_float(at->second.dtype()) || at->second.dtype() == DType::bf16)
                                           ? ": convert_floats" : ""));
    } else if (const auto [other, first] = given.emplace(item, name); first) {
      copies.emplace_back(have.value(), at->second);
    } else if (!equal_bits(values.at(other->second), at->second)) {
      mismatched.push_back(fmt::format("{} (tied to {} but different)", name, other->second));
    }
  }
  for (const auto& [name, other] : others) {
    const auto at = wanted.find(name);
    if (at == wanted.end()) {
      unexpected.push_back(name);
      continue;
    }
    const Variable& have = at->second->variable;
    mismatched.push_back(fmt::format("{} ({} {}, needs {} {}{})", name, other.stored_as, other.shape, have.dtype(), have.shape(),
                                     other.shape == have.shape() && other.stored_as == "F16" ? ": convert_floats" : ""));
  }
  for (const auto& [name, item] : wanted)                // under its own path, or where that is not among the names under the first
    if (!values.contains(name) && !others.contains(name) &&
        (item->path == parameters.prefix() + name || !item->path.starts_with(parameters.prefix())) && given.emplace(item, name).second)
      missing.push_back(name);
  for (const auto& [name, value] : values)
    if (!wanted.contains(name)) unexpected.push_back(name);
  const auto part = [](std::string_view what, const std::vector<std::string>& list) {
    return list.empty() ? std::string() : fmt::format("; {}: {}", what, first_ten(list, " "));
  };
  const auto foreign = [&] {
    std::vector<std::string> names;
    for (const std::string& name : unexpected) names.push_back(shown(name));
    return names;
  };
  const bool names_differ = !partial && (!missing.empty() || !unexpected.empty());
  check<FileError>(!names_differ && mismatched.empty() && formed.empty(), "{}: does not fit the model{}{}{}", source,
                   names_differ ? part("missing", missing) + part("unexpected", foreign()) : "", part("mismatched", mismatched),
                   part("GRUs of another form", formed) + (names_differ ? where_missing(missing, unexpected) : ""));
  copy_each(std::move(copies));
  return {std::move(missing), std::move(unexpected)};
}

// A path without the prefix, "" of the path "core" without "core."; nothing where it is not below.
std::optional<std::string> below(const std::string& path, std::string_view prefix) {
  if (!(path + ".").starts_with(prefix)) return {};
  return path.substr(std::min(path.size(), prefix.size()));
}

// Forms of GRUs in a file's metadata, for its keys that begin so.
Metadata forms_under(const Metadata& metadata, std::string_view prefix) {
  Metadata forms;
  for (const auto& [path, form] : under(metadata, kFormKey))
    if (const auto name = below(path, prefix)) forms.emplace(std::string(kFormKey) + *name, form);
  return forms;
}

}  // namespace

std::map<std::string, Tensor> state(const Selection& parameters) {
  std::map<std::string, Tensor> out;
  for (const auto& [name, item] : names(parameters)) out[name] = item->variable.value();
  return out;
}

std::map<std::string, std::string> gru_forms(const Selection& parameters) {
  Metadata out;
  const auto selected = names(parameters);
  for (const auto& [path, form] : parameters.owner().gru_forms()) {
    const auto name = below(path, parameters.prefix());
    if (name &&
        std::ranges::any_of(selected, [own = name->empty() ? "" : *name + "."](const auto& item) { return item.first.starts_with(own); }))
      out[std::string(kFormKey) + *name] = form;
  }
  return out;
}

void load(const Selection& parameters, const std::map<std::string, Tensor>& values, std::string_view source) {
  copy_all(parameters, values, {}, source, {});
}

void load(const Selection& parameters, const std::map<std::string, Tensor>& values, const Metadata& metadata, std::string_view source) {
  copy_all(parameters, values, {}, source, other_forms(gru_forms(parameters), metadata));
}

Loaded load(const Selection& parameters, const SafetensorsFile& file, LoadOptions options) {
  const auto tensors = under(file.tensors, options.from);
  const Others others = under(file.others, options.from);
  check<FileError>(!tensors.empty() || !others.empty() || options.from.empty(), "{}: no key begins with {}: the first is {}", file.path,
                   quote(options.from), file.header.tensors.empty() ? "missing, too" : quote(file.header.tensors.front().name));
  Metadata have = gru_forms(parameters), given = forms_under(file.metadata, options.from);
  if (options.partial) {                           // of a GRU that only one of them has, nothing is copied
    const auto wanted = names(parameters);
    const auto is_copied = [&](const auto& form) {
      const std::string path = form.first.substr(kFormKey.size()), own = path.empty() ? "" : path + ".";
      return std::ranges::any_of(wanted, [&](const auto& item) {
        return item.first.starts_with(own) && (tensors.contains(item.first) || others.contains(item.first));
      });
    };
    for (Metadata* forms : {&have, &given}) std::erase_if(*forms, [&](const auto& form) { return !is_copied(form); });
  }
  return copy_all(parameters, tensors, others, file.path, other_forms(have, given), options.partial);
}

void save(const Selection& parameters, const std::string& path) { write_safetensors(path, state(parameters), gru_forms(parameters)); }

Loaded load(const Selection& parameters, const std::string& path, LoadOptions options) {
  return load(parameters, read_safetensors(path), options);
}

}  // namespace heed
