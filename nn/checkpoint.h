// SPDX-License-Identifier: Apache-2.0
// Weights of a model in and out, by path: PyTorch's state dict in safetensors.
#pragma once
#include <map>
#include <string>

#include "nn/scope.h"
#include "tensor/safetensors.h"

namespace heed {

// Path without the selection's prefix -> value, which shares the parameter's memory: clone to keep it. Tied parameters stand under each of
// their paths, as in PyTorch's state_dict.
std::map<std::string, Tensor> state(const Selection& parameters);
// The metadata of a file with these values: gru_form.<path> = bahdanau or cho.
// A GRU of which a file says nothing has PyTorch's form, cudnn.
std::map<std::string, std::string> gru_forms(const Selection& parameters);

// What stands under keys that begin so, by their rest.
template <class T> std::map<std::string, T> under(const std::map<std::string, T>& all, std::string_view prefix) {
  std::map<std::string, T> some;
  for (const auto& [key, value] : all)
    if (key.starts_with(prefix)) some.emplace(key.substr(prefix.size()), value);
  return some;
}

// Copies values in. FileError that lists missing, unexpected and mismatched keys at once, ten of each; then nothing has changed.
// `source` names where the values come from in the message.
void load(const Selection& parameters, const std::map<std::string, Tensor>& values, std::string_view source = "state");
// With the metadata of the file that they come from: refuses GRUs of another form too.
void load(const Selection& parameters, const std::map<std::string, Tensor>& values, const std::map<std::string, std::string>& metadata,
          std::string_view source);

struct LoadOptions {
  std::string_view from = {};    // of the file's keys those that begin so, without it ("encoder."); the others are not read
  bool partial = false;          // what is missing stays, what is unexpected is left out; shapes and dtypes must fit all the same
};
struct Loaded { std::vector<std::string> missing, unexpected; };   // none unless partial

// The same of a file's tensors; those with which Heed does not compute are mismatched, and those of another precision: convert_floats.
Loaded load(const Selection& parameters, const SafetensorsFile& file, LoadOptions options = {});

void save(const Selection& parameters, const std::string& path);   // a safetensors file; FileError
Loaded load(const Selection& parameters, const std::string& path, LoadOptions options = {});

inline std::map<std::string, Tensor> state(Parameters& parameters) { return state(parameters.select()); }
inline void save(Parameters& parameters, const std::string& path) { save(parameters.select(), path); }
inline Loaded load(Parameters& parameters, const std::string& path, LoadOptions options = {}) {
  return load(parameters.select(), path, options);
}
inline void load(Parameters& parameters, const std::map<std::string, Tensor>& values) { load(parameters.select(), values); }

}  // namespace heed
