// Reads traces (trace.h). Whatever the bytes are, the answer is a record or one line that names
// file and place.
#pragma once

#include <cstddef>
#include <string>

#include "daemon/base/result.h"
#include "daemon/trace/trace.h"

namespace heddle::trace {

class Reader {
 public:
  // `name` is for messages.
  static Result<Reader> open(const std::string& path);
  static Result<Reader> from_bytes(std::string bytes, std::string name);

  const Header& header() const { return header_; }
  const std::string& name() const { return name_; }

  // A trace whose recorder was killed then ends where it breaks off, instead of with an error.
  void allow_truncated() { may_be_truncated_ = true; }
  // The next record into `out`; false once the trace's end was read.
  Result<bool> next(Record& out);
  // What is to be said of a trace that broke off, in one line; "" if it did not.
  const std::string& warning() const { return warning_; }

  uint64_t records() const { return records_; }  // read so far
  uint64_t lost() const { return lost_; }        // of those that the recording missed

 private:
  Reader(std::string bytes, std::string name) : bytes_(std::move(bytes)), name_(std::move(name)) {}
  Result<void> read_header();
  tl::unexpected<Error> problem(const std::string& what) const;
  Result<bool> broken_off();

  std::string bytes_;
  std::string name_;
  Header header_;
  size_t at_byte_ = 0;
  core::TimeNs last_at_ = 0;
  uint64_t records_ = 0, lost_ = 0;
  bool ended_ = false, may_be_truncated_ = false;
  std::string warning_;
};

}  // namespace heddle::trace
