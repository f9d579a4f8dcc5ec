#include "daemon/trace/predict.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "daemon/trace/timeline.h"

namespace heddle::trace {
namespace {

using core::Event;
using core::EventKind;
using core::TimeNs;

// A synchronizing call that took this long waited for the GPU; with nothing to wait for it takes a
// few microseconds (measured on an H200).
constexpr double kWaitedUs = 10;

double us(TimeNs ns) { return static_cast<double>(ns) / 1e3; }

double quantile(std::vector<double>& values, double share) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto rank = static_cast<ptrdiff_t>(static_cast<double>(values.size() - 1) * share);
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<size_t>(rank)];
}

bool is_launch(const Event& e) {
  const bool launch =
      e.launch.kind == core::LaunchKind::kKernel || e.launch.kind == core::LaunchKind::kGraph;
  if (e.kind == EventKind::kAsked) return launch;
  return e.kind == EventKind::kPosted && launch &&
         e.launch.admission != core::Admission::kSelfCapturing;
}

class Scorer {
 public:
  Result<std::vector<TaskPredictions>> score(Reader& reader) {
    Record record;
    for (;;) {
      const Result<bool> more = reader.next(record);
      if (!more) return tl::unexpected<Error>(more.error());
      if (!*more) break;
      if (const auto* device = std::get_if<DeviceRecord>(&record)) {
        const core::Config& config = device->config;
        std::unique_ptr<core::Scheduler>& core = cores_[config.device];
        if (core != nullptr && !device->fresh) {  // the mode changed, or who is alone
          core->set_mode(config.mps, config.switch_us, device->at);
        } else {
          core = std::make_unique<core::Scheduler>(config);
        }
      }
      const auto* e = std::get_if<EventRecord>(&record);
      if (e == nullptr || cores_.count(e->event.device) == 0) continue;
      core::Scheduler& core = *cores_[e->event.device];
      before(core, e->event);
      core.step(e->event);
    }
    std::erase_if(tasks_, [](const TaskPredictions& t) { return t.launches == 0; });
    return std::move(tasks_);
  }

 private:
  struct Launch {
    double predicted_us = 0;
    bool known = false;
  };
  struct Client {
    size_t task = 0;
    TimeNs first = 0;      // launch of all
    TimeNs run_start = 0;  // first launch since a synchronizing call; 0: none
    TimeNs wait_start = 0;
    bool unseen = false;   // work that nobody told of may be in the queue
    TimeNs queue_end = 0;  // as predicted when the wait began
    std::map<uint16_t, std::map<uint64_t, Launch>> launches;  // by stream and number, not complete
  };

  void before(const core::Scheduler& core, const Event& e) {
    if (e.kind == EventKind::kAttached) {
      clients_[{e.device, e.client}] = {};
      clients_[{e.device, e.client}].task = tasks_.size();
      ClientTrack who;
      who.who = e.attached;
      tasks_.emplace_back().name = who.name();
      return;
    }
    const auto it = clients_.find({e.device, e.client});
    if (it == clients_.end()) return;
    Client& c = it->second;
    if (e.kind == EventKind::kWaiting && c.wait_start == 0) {
      c.wait_start = e.at;
      c.queue_end = core.view().outlook(e.client, e.at, core::kUnknownKernel).queue_end;
    } else if (e.kind == EventKind::kUnobserved) {
      c.unseen = true;
    } else if (e.kind == EventKind::kCompleted) {
      on_completed(c, e);
    } else if ((e.kind == EventKind::kPosted || e.kind == EventKind::kAsked) && is_launch(e)) {
      on_launch(core, c, e);
    }
  }

  void on_launch(const core::Scheduler& core, Client& c, const Event& e) {
    auto& launches = c.launches[e.launch.stream];
    if (e.launch.ask_seq != 0 && launches.contains(e.launch.stream_seq)) {
      return;  // the first of its unit, which was asked about
    }
    TaskPredictions& task = tasks_[c.task];
    const core::Outlook outlook = core.view().outlook(e.client, e.at, e.launch.kernel);
    if (task.launches++ == 0) {
      c.first = e.at;
    } else if (!outlook.busy && us(e.at - outlook.idle_since) < core.config().idle_us_max) {
      auto& gaps = outlook.gap_synchronized ? task.gaps_synchronized : task.gaps_launching;
      const double real_us = std::max(0.0, us(e.at - outlook.idle_since));
      gaps.push_back({outlook.gap_us, real_us, outlook.gap_known});
    }
    task.seconds = us(e.at - c.first) / 1e6;
    if (c.run_start == 0) c.run_start = e.at;
    launches[e.launch.stream_seq] = {outlook.duration_us, outlook.duration_timed};
  }

  void on_completed(Client& c, const Event& e) {
    if (e.done.evidence == core::Evidence::kFailed) return;
    TaskPredictions& task = tasks_[c.task];
    if (e.done.stream != core::kEveryStream && e.done.duration_us > 0) {
      const auto launch = c.launches[e.done.stream].find(e.done.stream_seq);
      if (launch != c.launches[e.done.stream].end()) {
        task.durations.push_back({launch->second.predicted_us,
                                  static_cast<double>(e.done.duration_us), launch->second.known});
      }
    }
    for (auto& [stream, launches] : c.launches) {
      if (e.done.stream == core::kEveryStream) launches.clear();
      if (e.done.stream != stream) continue;
      launches.erase(launches.begin(), launches.upper_bound(e.done.stream_seq));
    }
    if (e.done.evidence != core::Evidence::kSynchronized) return;
    const bool over = std::all_of(c.launches.begin(), c.launches.end(),
                                  [](const auto& stream) { return stream.second.empty(); });
    if (over && c.run_start != 0 && c.wait_start != 0 && !c.unseen) on_queue_end(c, task, e.at);
    if (over) c.run_start = 0;
    c.unseen &= !over;
    c.wait_start = 0;
  }

  static void on_queue_end(const Client& c, TaskPredictions& task, TimeNs returned) {
    if (us(returned - c.wait_start) >= kWaitedUs) {
      task.queue_ends.push_back({us(c.queue_end - c.run_start), us(returned - c.run_start), true});
    } else {
      ++task.prompt_ends;
      if (c.queue_end > returned) ++task.prompt_overrun;
    }
  }

  std::map<uint8_t, std::unique_ptr<core::Scheduler>> cores_;
  std::map<std::pair<uint8_t, core::ClientId>, Client> clients_;
  std::vector<TaskPredictions> tasks_;
};

}  // namespace

ErrorSummary errors_of(const std::vector<Prediction>& predictions) {
  ErrorSummary out;
  std::vector<double> absolute, relative;
  double sum = 0, sum_absolute = 0;
  for (const Prediction& p : predictions) {
    ++out.count;
    if (!p.known) continue;
    const double error = p.predicted_us - p.real_us;
    absolute.push_back(std::abs(error));
    relative.push_back(std::abs(error) / p.real_us);
    sum += error;
    sum_absolute += std::abs(error);
  }
  out.known = absolute.size();
  out.median_us = quantile(absolute, 0.5);
  out.relative_median = quantile(relative, 0.5);
  out.mean_us = sum_absolute / static_cast<double>(out.known);
  out.bias_us = sum / static_cast<double>(out.known);
  return out;
}

GapSummary gaps_of(const std::vector<Prediction>& gaps) {
  GapSummary out;
  std::vector<double> overshoot;
  double useful_us = 0;
  for (const Prediction& p : gaps) {
    ++out.count;
    out.real_us += p.real_us;
    if (!p.known) continue;
    ++out.known;
    useful_us += std::min(p.predicted_us, p.real_us);
    if (p.predicted_us > p.real_us) overshoot.push_back(p.predicted_us - p.real_us);
  }
  out.useful = useful_us / out.real_us;
  out.missed = static_cast<double>(overshoot.size()) / static_cast<double>(out.known);
  out.overshoot_p50_us = quantile(overshoot, 0.5);
  out.overshoot_p90_us = quantile(overshoot, 0.9);
  return out;
}

void TaskPredictions::add(const TaskPredictions& other) {
  const auto append = [](std::vector<Prediction>& to, const std::vector<Prediction>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(durations, other.durations);
  append(gaps_synchronized, other.gaps_synchronized);
  append(gaps_launching, other.gaps_launching);
  append(queue_ends, other.queue_ends);
  seconds += other.seconds;
  launches += other.launches;
  prompt_ends += other.prompt_ends;
  prompt_overrun += other.prompt_overrun;
}

double TaskPredictions::idle() const {
  double idle_us = 0;
  for (const auto* gaps : {&gaps_synchronized, &gaps_launching}) {
    for (const Prediction& p : *gaps) idle_us += p.real_us;
  }
  return idle_us / (seconds * 1e6);
}

Result<std::vector<TaskPredictions>> score_predictions(Reader& reader) {
  return Scorer().score(reader);
}

}  // namespace heddle::trace
