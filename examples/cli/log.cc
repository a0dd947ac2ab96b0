// SPDX-License-Identifier: Apache-2.0
#include "examples/cli/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "models/chart.h"
#include "models/text.h"
#include "tensor/error.h"
#include "tensor/file.h"
#include "tensor/format.h"

namespace heed::cli {
namespace {

[[noreturn]] void refused(const std::string& path, std::string_view what, int error) {
  throw FileError(fmt::format("{}: cannot {}: {}", path, what, std::strerror(error)), error);
}

constexpr std::string_view kBleu = "dev BLEU";

struct Descriptor {
  int number;
  ~Descriptor() { if (number >= 0) ::close(number); }
};

}  // namespace

std::string json_number(double x) { return std::isfinite(x) ? fmt::format("{}", x) : "null"; }

Log::Log(std::string path, Index bytes) : path_(std::move(path)) {
  if (bytes == 0) return;
  const std::string text = read_file(path_);
  if (Index(text.size()) < bytes || text[std::size_t(bytes) - 1] != '\n')
    throw FileError(fmt::format("{}: does not fit the checkpoint: {} bytes, {} when it was written", path_, text.size(), bytes));
  bytes_ = bytes;
  for (std::size_t at = 0; at < std::size_t(bytes);) {
    const std::size_t end = text.find('\n', at);
    try {
      take(text.substr(at, end - at));
    } catch (const Json::exception&) {
      throw FileError(fmt::format("{}: line {}: not as it was written: {}", path_,
                                  1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n'),
                                  quote(text.substr(at, end - at))));
    }
    at = end + 1;
  }
}

void Log::add(std::string_view line) {
  take(std::string(line));
  waiting_ += line;
  waiting_ += '\n';
}

void Log::take(const std::string& line) {
  const auto json = parse_json(line);
  if (!json.is_object()) return;
  if (const auto timing = json.find("timing"); timing != json.end() && timing->contains("seconds"))
    seconds_ = (*timing)["seconds"].get<double>();
  const auto step = json.find("step");
  if (step == json.end()) return;
  const auto point = [&](const char* key, const std::string& name) {
    if (!json.contains(key)) return;
    points_[name].x.push_back(step->get<double>());
    points_[name].y.push_back(json[key].is_number() ? json[key].get<double>() : NAN);
  };
  const std::string event = json.value("event", "");
  if (event == "update") point("loss", "train loss"), point("learning_rate", "learning rate");
  if (event == "dev") point("loss", "dev loss"), point("bleu", std::string(kBleu)), point("exact", "exact match (percent)");
}

void Log::sync() {
  const Descriptor file{::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)};
  if (file.number < 0) refused(path_, "open", errno);
  std::string_view rest = waiting_;
  for (Index at = bytes_; !rest.empty();) {
    const ssize_t written = ::pwrite(file.number, rest.data(), rest.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      if (::ftruncate(file.number, bytes_) != 0) refused(path_, "cut", errno);
      refused(path_, "write", error);
    }
    rest.remove_prefix(std::size_t(written));
    at += written;
  }
  if (::fdatasync(file.number) != 0) refused(path_, "sync", errno);
  if (bytes_ == 0) sync_name(path_);
  bytes_ += Index(waiting_.size());
  waiting_.clear();
}

void Log::cut() {
  const Descriptor file{::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)};
  if (file.number < 0) refused(path_, "open", errno);
  if (::ftruncate(file.number, bytes_) != 0) refused(path_, "cut", errno);
}

void Log::write_curves(const std::string& path, const std::string& bleu, const std::string& title, const std::string& caption) const {
  Curves curves{.title = title, .caption = caption};
  const auto panel = [&](const std::string& name, std::initializer_list<std::string_view> series) {
    Curves::Panel panel{.title = name};
    for (const std::string_view key : series)
      if (const auto at = points_.find(std::string(key)); at != points_.end())
        panel.series.push_back({.name = key == kBleu ? bleu : std::string(key), .x = at->second.x, .y = at->second.y});
    if (!panel.series.empty()) curves.panels.push_back(std::move(panel));
  };
  panel("loss per token", {"train loss", "dev loss"});
  panel("quality on dev", {kBleu, "exact match (percent)"});
  panel("learning rate", {"learning rate"});
  if (!curves.panels.empty()) write_file_atomically(path, curves_svg(curves));
}

void each_entry(const std::string& path, const std::function<void(const Json&)>& take) {
  const std::string text = read_file(path);
  for (std::size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    if (const Json json = parse_json(text.substr(at, end - at)); json.is_object()) take(json);
  }
}

std::string end_after(const std::string& path, Index bytes) {
  if (!std::filesystem::exists(path)) return {};
  const std::string text = read_file(path);
  const bool ended =
      Index(text.size()) > bytes && text.ends_with('\n') && text.find("{\"event\": \"end\"", std::size_t(bytes)) != text.npos;
  return ended ? text.substr(std::size_t(bytes)) : std::string();
}

bool goes_beyond_evaluation(const std::string& path) {
  if (!std::filesystem::exists(path)) return false;
  const std::string text = read_file(path);
  const std::size_t end = text.find('\n', std::min(text.find("{\"event\": \"dev\""), text.size()));
  return end != text.npos && end + 1 < text.size();
}

}  // namespace heed::cli
