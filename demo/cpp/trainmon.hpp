// Tells trainmon the exact steps and phases of a C++ training. One header, C++17 (GCC 11 or later), Linux.
//   trainmon::init("mlp", 4000);                    // name and number of steps; optional
//   { trainmon::Phase phase("load data"); ... }     // outside a step it is a span of the run
//   for (...) {
//     trainmon::Step step;                          // until its scope ends; left by an exception, it is not counted
//     { trainmon::Phase phase("forward"); ... }     // phases nest; time belongs to the innermost one
//     trainmon::metric("loss", loss);
//     trainmon::count(tokens, samples);             // both add up; trainmon::skip("why") where no work was done
//   }
// Under `trainmon run` this writes a journal into $TRAINMON_RUN; without that variable nothing at all happens. It never
// throws, starts no thread, and writes at most every 50 ms: a training that is killed may take its last events along.
// Only the thread that calls first is heard, and no forked child.
#pragma once

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace trainmon {
namespace detail {

using Text = std::string_view;
constexpr std::size_t kName = 128, kPhases = 64, kMetrics = 32 << 10, kUnwritten = 4 << 20;  // characters, rows, bytes
constexpr long long kPause = 50'000'000;  // between two writes; times are nanoseconds

inline long long clock(clockid_t which = CLOCK_MONOTONIC) {
  timespec t{};
  return clock_gettime(which, &t), t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

// By to_chars: printf writes a comma in many a locale, and under -ffast-math std::isnan finds nothing.
inline std::string number(double value) {
  char text[32];
  const std::string out(text, std::to_chars(text, text + sizeof text, value).ptr);
  return out.find('n') == std::string::npos ? out : out == "-nan" ? "\"nan\"" : '"' + out + '"';
}
inline std::string seconds(long long ns) { return number(static_cast<double>(ns) / 1e9); }

// The length of the UTF-8 character that `text` begins with; 0 if it is none.
inline std::size_t character(Text text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned a = byte(0), b = byte(1);
  const std::size_t length = a < 0x80 ? 1 : a < 0xC2 ? 0 : a < 0xE0 ? 2 : a < 0xF0 ? 3 : a < 0xF5 ? 4 : 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const bool overlong = (a == 0xE0 && b < 0xA0) || (a == 0xF0 && b < 0x90);
  return overlong || (a == 0xED && b > 0x9F) || (a == 0xF4 && b > 0x8F) ? 0 : length;  // nor a surrogate, nor beyond
}

inline std::string quoted(Text text) {
  std::string out = "\"";
  text = text.substr(0, kName);
  for (std::size_t length; !text.empty(); text.remove_prefix(length ? length : 1)) {
    length = character(text);
    if (text[0] == '"' || text[0] == '\\') out += '\\';
    out += !length ? "?" : length == 1 && (text[0] < 0x20 || text[0] == 0x7F) ? " " : text.substr(0, length);
  }
  return out += '"';
}

inline long long place(const char* torchrun, const char* slurm, long long otherwise) {  // among the ranks
  const char* text = std::getenv(torchrun) ? std::getenv(torchrun) : std::getenv(slurm);
  return text ? std::strtoll(text, nullptr, 10) & 0xFFFFF : otherwise;
}

struct Journal {
  struct Open { std::string name; long long start, inner; bool is_step; };  // inner: what lay inside it
  struct Row { std::string name; long long ns, times; };                    // a phase of the open step

  std::vector<Open> open;
  std::vector<Row> rows;
  bool in_step = false, stepped = false;
  long long steps = 0, tokens = 0, samples = 0, seq = 0, written = 0;
  std::string metrics, reason, producer, line, out;  // out: whole lines that wait to be written
  int handle = -1, pid = getpid();
  const std::thread::id thread = std::this_thread::get_id();

  Journal() {
    const char* run = std::getenv("TRAINMON_RUN");
    char host[256] = "";
    if (run == nullptr || *run == '\0' || getentropy(host, 4) != 0) return;
    for (int i = 0; i < 8; ++i) producer += "0123456789abcdef"[host[i / 2] >> (i % 2 * 4) & 15];
    gethostname(host, sizeof host - 1);
    const long long rank = place("RANK", "SLURM_PROCID", 0);
    const std::string path = std::string(run) + "/rank-" + std::to_string(rank) + "-" + producer;
    handle = ::open((path + ".jsonl").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const int lock = ::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);  // held while this lives
    if (lock >= 0 && lockf(lock, F_TLOCK, 0) == 0) dprintf(lock, "{\"pid\": %d}", pid);
    begin("hello", clock()).add("protocol", 1).add("source", "\"native\"").add("rank", rank).add("pid", pid);
    add("world_size", place("WORLD_SIZE", "SLURM_NTASKS", 1)).add("wall", seconds(clock(CLOCK_REALTIME)));
    add("host", quoted(host)).add("name", quoted(program_invocation_short_name)).end();
  }
  ~Journal() {
    try { if (handle >= 0) begin("bye", clock()).end(), write(); } catch (...) {}  // no memory, no farewell
    handle = -1;
  }
  Journal& begin(const char* kind, long long t) {
    line = std::string("{\"kind\":\"") + kind + "\",\"producer\":\"" + producer + '"';
    return add("seq", seq).add("t", seconds(t));
  }
  Journal& add(Text key, const std::string& value) { return line.append(",\"").append(key) += "\":" + value, *this; }
  Journal& add(Text key, long long value) { return add(key, std::to_string(value)); }
  void end() {
    out += line + "}\n", ++seq;
    if (clock() - written >= kPause) write();
  }
  void write() {  // whole lines or none; what the disk refuses is tried again with the next ones, up to a limit
    written = clock();
    const off_t size = lseek(handle, 0, SEEK_END);
    if (getpid() != pid || size < 0) return handle = -1, out.clear();  // a forked child: it is its parent's journal
    const bool done = ::write(handle, out.data(), out.size()) == static_cast<ssize_t>(out.size());
    if (done || ftruncate(handle, size) != 0 || out.size() > kUnwritten) out.clear();  // `seq` tells what is missing
  }
  void enter(Text name, bool is_step) {
    const long long t = clock();
    is_step = is_step && !in_step;  // steps do not nest: an inner one is a phase of the outer one
    if (is_step) rows.clear(), metrics.clear(), reason.clear(), tokens = samples = 0;
    if (is_step && !stepped)  // what precedes the first step is start-up, and no part of a span around the loop
      for (Open& each : open) each.start = t, each.inner = 0;
    stepped |= is_step, in_step |= is_step;
    open.push_back({quoted(name), t, 0, is_step});
  }
  void leave() {
    const long long t = clock();
    const Open it = open.back();
    open.pop_back(), in_step = in_step && !it.is_step;
    if (it.is_step && std::uncaught_exceptions() > 0) return;
    if (!open.empty()) open.back().inner += t - it.start;
    if (it.is_step) return step(it, t);
    if (in_step) return phase(it, t - it.start - it.inner);
    begin("span", t).add("name", it.name).add("start", seconds(it.start)).add("duration", seconds(t - it.start));
    add("own", seconds(t - it.start - it.inner)).end();
  }
  void step(const Open& it, long long t) {
    std::string list;
    for (auto& r : rows) list += ",[" + r.name + ',' + seconds(r.ns) + ",\"host\"," + std::to_string(r.times) + ']';
    begin("step", t).add("index", ++steps).add("start", seconds(it.start)).add("duration", seconds(t - it.start));
    add("phases", '[' + list.erase(0, 1) + ']').add("metrics", '{' + metrics + '}');
    if (tokens > 0) add("tokens", tokens);
    if (samples > 0) add("samples", samples);
    add("status", reason.empty() ? "\"ok\"" : "\"skipped\",\"reason\":" + reason).end();
  }
  void phase(const Open& it, long long own) {
    std::size_t i = 0;
    while (i < rows.size() && rows[i].name != it.name) ++i;
    if (i == kPhases) return;  // past so many names, the time is the step's `other`
    if (i == rows.size()) rows.push_back({it.name, 0, 0});
    rows[i].ns += own, ++rows[i].times;
  }
};

inline Journal& journal() { static Journal only; return only; }
template <class Action>
void call(Action action) noexcept {
  try {
    if (Journal& it = journal(); it.handle >= 0 && std::this_thread::get_id() == it.thread) action(it);
  } catch (...) {}  // no memory: an event is lost, the training is not
}

}  // namespace detail

struct Phase {
  explicit Phase(detail::Text name, bool is_step = false) noexcept {
    detail::call([&](auto& it) { it.enter(name, is_step), open = true; });
  }
  ~Phase() { if (open) detail::call([](auto& it) { it.leave(); }); }
  Phase(Phase&&) = delete;  // nor copied
  bool open = false;
};
struct Step : Phase { Step() noexcept : Phase("step", true) {} };

inline void init(detail::Text name, long long total_steps = 0, long long steps_before = 0) noexcept {
  detail::call([&](auto& it) {
    it.begin("facts", detail::clock()).add("name", detail::quoted(name)).add("start_step", it.steps = steps_before);
    if (total_steps > 0) it.add("total_steps", total_steps);
    it.end();
  });
}
inline void metric(detail::Text name, double value) noexcept {
  detail::call([&](auto& it) {
    const std::string pair = detail::quoted(name) + ':' + detail::number(value);
    if (!it.in_step) it.begin("metrics", detail::clock()).add("values", '{' + pair + '}').end();
    else if (it.metrics.size() + pair.size() < detail::kMetrics) it.metrics += (it.metrics.empty() ? "" : ",") + pair;
  });
}
inline void count(long long tokens, long long samples = 0) noexcept {
  detail::call([&](auto& it) { it.tokens += tokens, it.samples += samples; });
}
inline void skip(detail::Text reason) noexcept { detail::call([&](auto& it) { it.reason = detail::quoted(reason); }); }

}  // namespace trainmon
