// SPDX-License-Identifier: Apache-2.0
#include "nn/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tensor/format.h"

namespace heed {
namespace {

constexpr std::string_view kNames[] = {"constant", "linear", "inverse_sqrt", "noam", "cosine", "step", "plateau"};

}  // namespace

std::vector<std::string_view> Schedule::names() { return {std::begin(kNames), std::end(kNames)}; }
std::string_view Schedule::name(Kind kind) { return kNames[std::size_t(kind)]; }

Schedule::Kind Schedule::kind(std::string_view name) {
  return Kind(place_of("schedule", kNames, name));
}

Schedule::Schedule(Options options) : options_(options) {
  Options& o = options_;
  if (!o.factor) o.factor = o.kind == Kind::noam ? 1 : 0.5;
  const auto in_range = [](std::string_view what, double value) {
    check<Error>(std::isfinite(value) && value >= 0, "schedule: {} must {}: {}", what,
                 std::isfinite(value) ? "not be negative" : "be finite", value);
  };
  in_range("the learning rate", o.peak);
  in_range("start", o.start);
  in_range("end", o.end);
  in_range("factor", *o.factor);
  in_range("warmup", double(o.warmup));
  in_range("after", double(o.after));
  in_range("patience", o.patience);
  if (o.kind == Kind::linear || o.kind == Kind::cosine)
    check<Error>(o.total > o.warmup, "schedule: {} needs total > warmup: total {}, warmup {}", name(o.kind), o.total, o.warmup);
  if (o.kind == Kind::inverse_sqrt || o.kind == Kind::noam)
    check<Error>(o.warmup > 0, "schedule: {} needs warmup > 0: {}", name(o.kind), o.warmup);
  if (o.kind == Kind::noam) check<Error>(o.width > 0, "schedule: noam needs width > 0: {}", o.width);
  if (o.kind == Kind::step) check<Error>(o.every > 0, "schedule: step needs every > 0: {}", o.every);
}

double Schedule::rate(std::int64_t step) const {
  const Options& o = options_;
  const double s = double(std::max<std::int64_t>(step, 1)), warmup = double(o.warmup);
  if (o.kind == Kind::noam) return *o.factor / std::sqrt(double(o.width)) * std::min(1 / std::sqrt(s), s * std::pow(warmup, -1.5));
  const double peak = o.kind == Kind::plateau ? o.peak * std::pow(*o.factor, state_.falls) : o.peak;
  if (s < warmup) return peak * (o.start + (1 - o.start) * s / warmup);
  const double progress = o.total > o.warmup ? std::min(1.0, (s - warmup) / double(o.total - o.warmup)) : 1;
  switch (o.kind) {
    case Kind::linear: return o.peak * (1 - (1 - o.end) * progress);
    case Kind::inverse_sqrt: return o.peak * std::sqrt(warmup / s);
    case Kind::cosine: return o.peak * (o.end + (1 - o.end) * (1 + std::cos(std::numbers::pi * progress)) / 2);
    case Kind::step: return o.peak * std::pow(*o.factor, std::floor(std::max(0.0, s - 1 - double(o.after)) / double(o.every)));
    case Kind::plateau: case Kind::constant: case Kind::noam: break;
  }
  return peak;
}

void Schedule::observe(double score) {
  if (options_.kind != Kind::plateau) return;
  if (!std::isnan(score) && (!state_.seen || (options_.higher_is_better ? score > state_.best : score < state_.best))) {
    state_ = {.best = score, .waited = 0, .falls = state_.falls, .seen = true};
  } else if (++state_.waited > options_.patience) {
    ++state_.falls;
    state_.waited = 0;
  }
}

}  // namespace heed
