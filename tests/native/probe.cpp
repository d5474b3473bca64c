// Uses trainmon.hpp in the ways that its tests ask for; the first argument names one.

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "trainmon.hpp"

namespace {

void rest(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// Names and numbers that a journal must survive. The numbers come in as text, so that -ffast-math cannot fold them.
void hostile() {
  std::setlocale(LC_ALL, "");
  trainmon::init("quote \" backslash \\ \x1b]52;c;x\x07 newline \n", 3);
  for (int i = 0; i < 3; ++i) {
    trainmon::Step step;
    { trainmon::Phase phase("phase\t\"]}\n{\"kind\":\"bye\"}"); }
    { trainmon::Phase phase("\xff\xfe broken \xc3( \xed\xa0\x80 \xf5"); }
    { trainmon::Phase phase("grün 日本 🚀"); }
    { trainmon::Phase phase(std::string(5000, 'x')); }
    { trainmon::Phase phase(""); }
    trainmon::metric("a\"b\\c\n\x01\x7f", 1.5);
    trainmon::metric("loss[/foo]", std::strtod("nan", nullptr));
    trainmon::metric("minus nan", std::strtod("-nan", nullptr));
    trainmon::metric("up", std::strtod("inf", nullptr));
    trainmon::metric("down", std::strtod("-inf", nullptr));
    trainmon::metric("tiny", 1e-300);
    trainmon::metric("huge", 1.7e308);
    for (int k = 0; k < 3000; ++k) trainmon::metric("metric number " + std::to_string(k), k / 8.0);
    for (int k = 0; k < 200; ++k) trainmon::Phase phase("phase number " + std::to_string(k));
    if (i == 1) trainmon::skip("nothing \"to\" do\n");
  }
}

// Times that lie inside one another; a span around the loop; a step in a step; one that an exception leaves.
void nested() {
  trainmon::Phase around("around");
  rest(20);
  { trainmon::Phase load("load"); rest(10); }
  for (int i = 0; i < 3; ++i) {
    trainmon::Step step;
    trainmon::Phase outer("outer");
    rest(2);
    for (int k = 0; k < 2; ++k) { trainmon::Phase inner("inner"); rest(10); }
    trainmon::Step again;
    trainmon::count(5, 1);
    trainmon::count(5);
  }
  try {
    trainmon::Step step;
    trainmon::Phase phase("doomed");
    throw std::runtime_error("left early");
  } catch (const std::runtime_error&) {
  }
  { trainmon::Phase eval("eval"); rest(10); }
  trainmon::metric("between", 2.0);
}

// Other threads and forked children must not mix with the thread that was first.
void company() {
  { trainmon::Step step; }
  std::thread([] { for (int i = 0; i < 100; ++i) { trainmon::Step step; trainmon::metric("other thread", 1.0); } }).join();
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 100; ++i) { trainmon::Step step; rest(1); }
    std::exit(0);  // with the destructors that write what is left
  }
  waitpid(child, nullptr, 0);
  { trainmon::Step step; }
}

// Steps without end; a line on stdout for each tells how many there were.
void endless() {
  for (long i = 1;; ++i) {
    { trainmon::Step step; trainmon::metric("i", static_cast<double>(i)); rest(5); }
    std::printf("%ld\n", i);
    std::fflush(stdout);
  }
}

void many() {
  for (int i = 0; i < 5000; ++i) trainmon::Step step;
}

}  // namespace

int main(int, char** argv) {
  const std::string what = argv[1];
  if (what == "hostile") hostile();
  if (what == "nested") nested();
  if (what == "company") company();
  if (what == "endless") endless();
  if (what == "many") many();
  std::puts("done");
}
