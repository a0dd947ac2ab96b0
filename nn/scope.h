// SPDX-License-Identifier: Apache-2.0
// Parameters are born from a Scope. The path of a parameter ("encoder.layers.0.linear1.weight", PyTorch's wherever PyTorch has the
// layer) is its checkpoint key, initial-value key, dropout key and selector.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/variable.h"
#include "tensor/inside.h"
#include "tensor/random.h"

namespace heed {

class Parameters;
class Selection;

// Writes initial values into a fresh tensor, as a function of its shape and key; see init.h.
using Initializer = std::function<void(const Tensor& into, Key key)>;

// Path of a module; first line of its call:  Inside inside(path);
class Path {
 public:
  Path() : text_(std::make_shared<const std::string>()) {}
  explicit Path(std::string text) : text_(std::make_shared<const std::string>(std::move(text))) {}
  Path(const Path&) = default;                  // a move copies: what was moved from keeps its path, for its error messages
  Path& operator=(const Path&) = default;
  operator std::string_view() const { return *text_; }
  const std::string& string() const { return *text_; }

 private:
  std::shared_ptr<const std::string> text_;
};

// One trained tensor. Moves, never copies; tying is said by share().
class Parameter {
 public:
  struct Data {
    std::string path;
    Variable variable;
    std::shared_ptr<Gradient> gradient;
    bool multiplied = true;                     // it multiplies the rows of a batch, as `summary` counts; false: tables of words or
                                                // positions, whose rows are only looked up, and what mixes heads
    bool frozen() const { return !gradient->wanted(); }
  };

  Parameter() = default;                        // absent, as a bias that was not asked for
  explicit Parameter(std::shared_ptr<Data> data) : data_(std::move(data)) {}
  Parameter(Parameter&&) = default;
  Parameter& operator=(Parameter&&) = default;
  Parameter share() const { return Parameter(data_); }

  bool defined() const { return data_ != nullptr; }
  operator const Variable&() const { return variable(); }
  const Variable& variable() const;             // the undefined Variable when absent
  const Tensor& value() const { return variable().value(); }
  const Shape& shape() const { return variable().shape(); }
  const std::string& path() const { return data().path; }
  Data& data() const;                           // Error when absent

 private:
  std::shared_ptr<Data> data_;
};

// First check of a module's call that has no other sign of it: Error unless its weights are `there`.
void check_not_moved_from(bool there, std::string_view module);

// Where parameters are declared:  scope / "encoder" / "layers" / 0
class Scope {
 public:
  Scope operator/(std::string_view name) const;
  Scope operator/(Index number) const { return *this / std::string_view(std::to_string(number)); }

  // A new parameter `path.name`. Error when the path exists already: also that of a module whose constructor threw; where a name is empty
  // or holds a *; without an initializer. ShapeError where a size is below 1.
  Parameter parameter(std::string_view name, const Shape& shape, const Initializer& init) const;
  // Makes `path.name` another name of a parameter that exists: one tensor, one summed gradient. ShapeError unless shapes agree, Error
  // where it belongs to other Parameters or is absent, and where the path exists already.
  Parameter alias(std::string_view name, Parameter shared, const Shape& shape) const;

  Selection select(std::string_view pattern = "*") const;   // of the parameters under this path: "*weight" has its own and those below
  // Says that the module at this path is a GRU of another form than PyTorch's: weights of equal shapes that mean something else.
  void gru_form(std::string_view form) const;

  const Path& path() const { return path_; }
  DType dtype() const;

 private:
  friend class Parameters;
  Scope(Parameters* parameters, Path path) : parameters_(parameters), path_(std::move(path)) {}
  std::string child(std::string_view name) const;
  Parameters* parameters_;
  Path path_;
};

// Some of the parameters, in declaration order; see Parameters::select.
class Selection {
 public:
  explicit Selection(Parameters& owner, std::vector<std::shared_ptr<Parameter::Data>> items, std::string prefix = {})
      : owner_(&owner), items_(std::move(items)), prefix_(std::move(prefix)) {}
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  void freeze() const;                           // no gradient, no update
  void unfreeze() const;
  void forget_gradients() const;
  // new initial values, by the keys that the paths give; of an embedding's row of padding too
  void initialise(const Initializer& init) const;
  Index count() const;                           // elements
  Parameters& owner() const { return *owner_; }
  const std::string& prefix() const { return prefix_; }   // "core." for select("core.*") and select("core.e*")

 private:
  Parameters* owner_;
  std::vector<std::shared_ptr<Parameter::Data>> items_;
  std::string prefix_;
};

// All parameters of a model, in declaration order.
class Parameters {
 public:
  explicit Parameters(Seed seed, DType dtype = DType::f32);
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  Scope root() { return Scope(this, Path()); }
  DType dtype() const { return dtype_; }

  // By path, `*` standing for any text: select("encoder.*"). A tied parameter goes by any of its paths. Error when nothing matches, with
  // the nearest path.
  Selection select(std::string_view pattern = "*");
  // Those for which it is true, as weights of matrices:  select([](const Parameter::Data& p) { return p.variable.rank() > 1; })
  Selection select(const std::function<bool(const Parameter::Data&)>& chosen);
  const Parameter::Data* find(std::string_view path) const;       // aliases included; nullptr when absent
  const Parameter::Data& at(std::string_view path) const;         // the same; Error when absent, with the nearest path
  const std::map<std::string, std::string>& aliases() const { return aliases_; }   // other name -> path
  // path of a GRU -> its form, where it is not PyTorch's
  const std::map<std::string, std::string>& gru_forms() const { return gru_forms_; }
  const std::vector<std::shared_ptr<Parameter::Data>>& items() const { return items_; }
  Index count() const;                                            // elements, tied ones once

  // Marks all gradients unwritten: the next tape overwrites them. Tapes before that add up.
  void forget_gradients();

 private:
  friend class Scope;
  friend class Selection;
  std::string nearest(std::string_view pattern) const;            // "the nearest is encoder.weight", "there are none"
  Key initial_key(std::string_view path) const { return Key(seed_) / "initial value" / path; }
  Parameter declare(std::string path, const Shape& shape, const Initializer& init);

  Seed seed_;
  DType dtype_;
  std::vector<std::shared_ptr<Parameter::Data>> items_;
  std::map<std::string, std::shared_ptr<Parameter::Data>, std::less<>> by_path_;
  std::map<std::string, std::string> aliases_, gru_forms_;
};

// Gradient of a parameter as the next update will see it, clipped; undefined when nothing reached it.
Tensor gradient(const Parameter& parameter);

}  // namespace heed
