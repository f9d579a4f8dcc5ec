#include "daemon/base/printable_output.h"

#include <stdio.h>
#include <unistd.h>
#include <ext/stdio_sync_filebuf.h>

#include <iostream>

namespace heddle {
namespace {

struct Output {
  int fd;
  unsigned char before = '\n';
};

// What could not be written is gone, as with a terminal that closed; whoever asks hears of it.
ssize_t put(void* cookie, const char* bytes, size_t count) {
  Output& output = *static_cast<Output*>(cookie);
  const std::string text = without_controls({bytes, count}, output.before);
  for (size_t at = 0; at < text.size();) {
    const ssize_t written = TEMP_FAILURE_RETRY(write(output.fd, &text[at], text.size() - at));
    if (written <= 0) return 0;
    at += static_cast<size_t>(written);
  }
  return static_cast<ssize_t>(count);
}

// Lives as long as the process: streams are flushed when it exits.
void replace(FILE*& stream, std::ostream& out, int fd, int buffering) {
  FILE* made = fopencookie(new Output{fd}, "w", {nullptr, put, nullptr, nullptr});
  if (made == nullptr) return;
  setvbuf(made, nullptr, buffering, BUFSIZ);
  fflush(stream);
  stream = made;
  out.rdbuf(new __gnu_cxx::stdio_sync_filebuf<char>(made));
}

}  // namespace

std::string without_controls(std::string_view text, unsigned char& before) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool ascii = byte < 0x20 || byte == 0x7f;
    const bool wide = byte >= 0x80 && byte < 0xa0 && (before < 0x80 || before == 0xc2);
    before = byte;
    if ((ascii && c != '\n' && c != '\t') || wide) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

void keep_output_printable() {
  replace(stderr, std::cerr, STDERR_FILENO, _IONBF);
  if (isatty(STDOUT_FILENO) != 0) replace(stdout, std::cout, STDOUT_FILENO, _IOLBF);
}

}  // namespace heddle
