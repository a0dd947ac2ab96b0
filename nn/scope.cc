// SPDX-License-Identifier: Apache-2.0
#include "nn/scope.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "tensor/format.h"
#include "tensor/ops/binary.h"

namespace heed {

const Variable& Parameter::variable() const {
  static const Variable absent;
  return data_ ? data_->variable : absent;
}

Parameter::Data& Parameter::data() const {
  check<Error>(data_ != nullptr, "parameter: it is absent, as a bias that was not asked for; defined() says whether there is one");
  return *data_;
}

void check_not_moved_from(bool there, std::string_view module) {
  check<Error>(there, "{}: there are no weights (the module was moved from)", module);
}

namespace {

// In a selector * stands for anything.
void check_path(const std::string& path) {
  const std::string between = "." + path + ".";
  check<Error>(between.find("..") == between.npos && path.find('*') == path.npos,
               "parameter: names are not empty and hold no *: {}", quote(path));
}

}  // namespace

std::string Scope::child(std::string_view name) const {
  return path_.string().empty() ? std::string(name) : path_.string() + "." + std::string(name);
}

Scope Scope::operator/(std::string_view name) const {
  check<Error>(!name.empty(), "scope: an empty name under {}", quote(path_.string()));
  return Scope(parameters_, Path(child(name)));
}

DType Scope::dtype() const { return parameters_->dtype_; }

Parameter Scope::parameter(std::string_view name, const Shape& shape, const Initializer& init) const {
  return parameters_->declare(child(name), shape, init);
}

Parameter Scope::alias(std::string_view name, Parameter shared, const Shape& shape) const {
  std::string path = child(name);
  check_path(path);
  check<Error>(shared.defined(), "parameter: {} shares one that is absent", path);
  check<Error>(parameters_->find(shared.path()) == &shared.data(), "parameter: {} shares {}, which belongs to other Parameters", path,
               shared.path());
  check<ShapeError>(shared.shape() == shape, "parameter: {} shares {} of another shape: needs {}, shared {}", path, shared.path(), shape,
                    shared.shape());
  check<Error>(!parameters_->by_path_.contains(path), "parameter: declared twice: {}", path);
  parameters_->by_path_.emplace(path, parameters_->by_path_.at(shared.path()));
  parameters_->aliases_.emplace(std::move(path), shared.path());
  return shared;
}

Selection Scope::select(std::string_view pattern) const { return parameters_->select(child(pattern)); }

void Scope::gru_form(std::string_view form) const { parameters_->gru_forms_[path_.string()] = form; }

void Selection::freeze() const {
  for (const auto& item : items_) {
    item->gradient->want(false);
    item->gradient->forget();
  }
}

void Selection::unfreeze() const {
  for (const auto& item : items_) item->gradient->want(true);
}

void Selection::forget_gradients() const {
  for (const auto& item : items_) item->gradient->forget();
}

void Selection::initialise(const Initializer& init) const {
  check<Error>(bool(init), "initialise: no initializer");
  for (const auto& item : items_) {
    const Inside inside(item->path);
    init(item->variable.value(), owner_->initial_key(item->path));
  }
}

Index Selection::count() const {
  Index n = 0;
  for (const auto& item : items_) n += item->variable.numel();
  return n;
}

Parameters::Parameters(Seed seed, DType dtype) : seed_(seed), dtype_(dtype) {
  check<DTypeError>(is_float(dtype), "parameters: need f32 or f64: {}", dtype);
}

Parameter Parameters::declare(std::string path, const Shape& shape, const Initializer& init) {
  check_path(path);
  check<Error>(!by_path_.contains(path), "parameter: declared twice: {}", path);
  check<Error>(init != nullptr, "parameter: no initializer: {}", path);
  check<ShapeError>(std::ranges::all_of(shape, [](Index size) { return size >= 1; }), "parameter: sizes must be at least 1: {} {}", path,
                    shape);
  const Tensor value = empty(shape, dtype_);
  {
    const Inside inside(path);
    init(value, initial_key(path));
  }
  auto gradient = std::make_shared<Gradient>(value);
  gradient->live_apart();
  auto data = std::make_shared<Parameter::Data>(Parameter::Data{path, Variable(value, Slot(gradient)), gradient});
  items_.push_back(data);
  by_path_.emplace(std::move(path), data);
  return Parameter(std::move(data));
}

namespace {

// The fewest letters to change, insert or leave out until the text matches (Wagner and Fischer 1974): d_ij from the first i letters of
// the pattern to the first j of the text, one row at a time.
std::size_t changes(std::string_view pattern, std::string_view text) {
  std::vector<std::size_t> row(text.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char letter : pattern) {
    const bool star = letter == '*';
    std::size_t diagonal = row[0];
    if (!star) ++row[0];
    for (std::size_t j = 1; j <= text.size(); ++j) {
      const std::size_t changed = diagonal + (letter != text[j - 1]);
      diagonal = row[j];
      row[j] = star ? std::min(row[j], row[j - 1]) : std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

Selection Parameters::select(std::string_view pattern) {
  std::set<const Parameter::Data*> matching;
  for (const auto& [path, item] : by_path_)
    if (changes(pattern, path) == 0) matching.insert(item.get());
  if (matching.empty()) fail<Error>("select: no parameter matches {}; {}", quote(pattern), nearest(pattern));
  std::vector<std::shared_ptr<Parameter::Data>> chosen;
  for (const auto& item : items_)
    if (matching.contains(item.get())) chosen.push_back(item);
  const std::size_t star = pattern.find('*');
  return Selection(*this, std::move(chosen),
                   std::string(star == pattern.npos ? "" : pattern.substr(0, pattern.substr(0, star).rfind('.') + 1)));
}

Selection Parameters::select(const std::function<bool(const Parameter::Data&)>& chosen) {
  std::vector<std::shared_ptr<Parameter::Data>> some;
  std::ranges::copy_if(items_, std::back_inserter(some), [&](const auto& item) { return chosen(*item); });
  check<Error>(!some.empty(), "select: none of {} parameters is chosen", items_.size());
  return Selection(*this, std::move(some));
}

const Parameter::Data* Parameters::find(std::string_view path) const {
  const auto at = by_path_.find(path);
  return at == by_path_.end() ? nullptr : at->second.get();
}

const Parameter::Data& Parameters::at(std::string_view path) const {
  const Parameter::Data* const found = find(path);
  if (!found) fail<Error>("parameters: there is none {}; {}", quote(path), nearest(path));
  return *found;
}

std::string Parameters::nearest(std::string_view pattern) const {
  std::string_view best;
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  for (const auto& [path, item] : by_path_)
    if (const std::size_t changed = changes(pattern, path); changed < fewest) best = path, fewest = changed;
  return by_path_.empty() ? "there are none" : fmt::format("the nearest is {}", best);
}

Index Parameters::count() const {
  Index n = 0;
  for (const auto& item : items_) n += item->variable.numel();
  return n;
}

void Parameters::forget_gradients() {
  for (const auto& item : items_) item->gradient->forget();
}

Tensor gradient(const Parameter& parameter) {
  if (!parameter.defined()) return {};
  const Gradient& gradient = *parameter.data().gradient;
  if (!gradient.written()) return {};
  return multiply(gradient.value(), gradient.scale());
}

}  // namespace heed
