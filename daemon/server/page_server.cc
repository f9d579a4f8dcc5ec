#include "daemon/server/page_server.h"

#include <arpa/inet.h>
#include <signal.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <vector>

#include "daemon/server/handles.h"

namespace heddle::server {
namespace {

constexpr size_t kHeadMax = 8 * 1024;   // of a request: Prometheus sends a few hundred bytes
constexpr size_t kConnectionsMax = 64;  // at a time; the oldest one is closed to make room
constexpr uint64_t kPatienceMs = 10'000;
// A connection is not closed to make room before this age. So a peer that connects without pause
// waits in the kernel's queue, and cannot take the place of a request that is under way.
constexpr uint64_t kGraceMs = 50;
constexpr int kBacklog = 1024;

const char* reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Bad Request";
  }
}

// A header's name is a token (RFC 9110, 5.6.2), without the characters that are never used.
bool is_header(std::string_view line) {
  const size_t colon = line.find(':');
  const auto is_token = [](unsigned char c) { return isalnum(c) != 0 || c == '-' || c == '_'; };
  const auto is_text = [](unsigned char c) { return c == '\t' || (c >= 0x20 && c != 0x7f); };
  return colon != line.npos && colon > 0 &&
         std::all_of(line.begin(), line.begin() + static_cast<ptrdiff_t>(colon), is_token) &&
         std::all_of(line.begin(), line.end(), is_text);
}

// Takes the first line off `text`.
bool take_line(std::string_view& text, std::string_view& line) {
  const size_t end = text.find("\r\n");
  if (end == text.npos) return false;
  line = text.substr(0, end);
  text.remove_prefix(end + 2);
  return true;
}

Result<sockaddr_storage> parse_address(const std::string& listen) {
  const auto wrong = [&] {
    return fail(listen + ": not an address; give ADDRESS:PORT, such as 127.0.0.1:9410 or " +
                "[::1]:9410");
  };
  const size_t colon = listen.rfind(':');
  if (colon == listen.npos) return wrong();
  int port = -1;
  const char* end = listen.data() + listen.size();
  const auto [rest, error] = std::from_chars(listen.data() + colon + 1, end, port);
  if (error != std::errc() || rest != end || port < 0 || port > 65535) return wrong();
  std::string host = listen.substr(0, colon);
  sockaddr_storage address{};
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (uv_ip6_addr(host.c_str(), port, reinterpret_cast<sockaddr_in6*>(&address)) == 0) {
      return address;
    }
  } else if (uv_ip4_addr(host.c_str(), port, reinterpret_cast<sockaddr_in*>(&address)) == 0) {
    return address;
  }
  return wrong();
}

}  // namespace

int judge_request(std::string_view head, std::string_view path) {
  std::string_view line;
  if (!take_line(head, line)) return 400;
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || first == last) return 400;
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  std::string_view target = line.substr(first + 1, last - first - 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return 400;
  if (target.empty() || target.front() != '/' || target.find(' ') != target.npos) return 400;
  bool host = version == "HTTP/1.0";
  while (take_line(head, line) && !line.empty()) {
    if (!is_header(line)) return 400;
    const std::string_view name = line.substr(0, line.find(':'));
    const auto is = [&](std::string_view other) {
      return std::equal(name.begin(), name.end(), other.begin(), other.end(),
                        [](char a, char b) { return tolower(a) == b; });
    };
    host |= is("host");
    if (is("transfer-encoding")) return 400;  // a GET has no body here
  }
  if (!host) return 400;
  if (method != "GET" && method != "HEAD") return 405;
  target = target.substr(0, target.find('?'));
  return target == path ? 200 : 404;
}

struct PageServer::State {
  struct Connection {
    uv_tcp_t tcp{};
    uv_write_t write{};
    State* state = nullptr;
    uint64_t number = 0, since_ms = 0;
    std::string head, answer;
    char buffer[2048];
    bool answered = false;
  };

  State(std::string the_path, std::string type, std::function<std::string()> make)
      : path(std::move(the_path)), content_type(std::move(type)), page(std::move(make)) {
    uv_loop_init(&loop);
    uv_tcp_init(&loop, &listener);
    listener.data = this;
  }
  ~State() {
    while (!connections.empty()) close(*connections.begin()->second);
    uv_close(reinterpret_cast<uv_handle_t*>(&listener), nullptr);
    patience.reset();
    room.reset();
    stopper.reset();
    signals.clear();
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
  }

  static void close(Connection& connection) {
    auto* handle = reinterpret_cast<uv_handle_t*>(&connection.tcp);
    if (uv_is_closing(handle) != 0) return;
    State& state = *connection.state;
    state.connections.erase(connection.number);
    uv_close(handle, [](uv_handle_t* closed) { delete static_cast<Connection*>(closed->data); });
    if (state.waits) state.room->start(0);
  }

  // libuv calls again after the waiting connection was accepted.
  void take_next() {
    waits = true;
    if (connections.size() == kConnectionsMax) {
      Connection& oldest = *connections.begin()->second;
      const uint64_t age_ms = uv_now(&loop) - oldest.since_ms;
      if (age_ms < kGraceMs) return room->start(kGraceMs - age_ms);
      close(oldest);
    }
    waits = false;
    accept();
  }

  void accept() {
    auto owned = std::make_unique<Connection>();
    Connection& c = *owned;
    c.state = this;
    uv_tcp_init(&loop, &c.tcp);
    c.tcp.data = &c;
    c.since_ms = uv_now(&loop);
    c.number = ++last_number;
    connections.emplace(c.number, owned.release());
    auto* stream = reinterpret_cast<uv_stream_t*>(&c.tcp);
    if (uv_accept(reinterpret_cast<uv_stream_t*>(&listener), stream) != 0) return close(c);
    uv_read_start(
        stream,
        [](uv_handle_t* handle, size_t, uv_buf_t* into) {
          auto& reader = *static_cast<Connection*>(handle->data);
          *into = uv_buf_init(reader.buffer, sizeof reader.buffer);
        },
        [](uv_stream_t* from, ssize_t length, const uv_buf_t*) {
          auto& reader = *static_cast<Connection*>(from->data);
          reader.state->read(reader, length);
        });
  }

  void read(Connection& c, ssize_t length) {
    if (length < 0) return close(c);
    if (c.answered) return;  // bytes after a request are ignored
    c.head.append(c.buffer, static_cast<size_t>(length));
    const size_t end = c.head.find("\r\n\r\n");
    if (end == c.head.npos && c.head.size() <= kHeadMax) return;
    const int status = end == c.head.npos || end > kHeadMax
                           ? 400
                           : judge_request(std::string_view(c.head).substr(0, end + 4), path);
    answer(c, status);
  }

  void answer(Connection& c, int status) {
    c.answered = true;
    const std::string body = status == 200 ? page() : std::string(reason(status)) + '\n';
    c.answer = "HTTP/1.1 " + std::to_string(status) + ' ' + reason(status) +
               "\r\nContent-Type: " + (status == 200 ? content_type : "text/plain") +
               "\r\nContent-Length: " + std::to_string(body.size()) +
               (status == 405 ? "\r\nAllow: GET, HEAD" : "") + "\r\nConnection: close\r\n\r\n";
    if (!c.head.starts_with("HEAD ")) c.answer += body;
    uv_buf_t bytes = uv_buf_init(c.answer.data(), static_cast<unsigned>(c.answer.size()));
    c.write.data = &c;
    const int error =
        uv_write(&c.write, reinterpret_cast<uv_stream_t*>(&c.tcp), &bytes, 1,
                 [](uv_write_t* done, int) { close(*static_cast<Connection*>(done->data)); });
    if (error != 0) close(c);
  }

  void end_the_slow() {
    while (!connections.empty() &&
           uv_now(&loop) - connections.begin()->second->since_ms >= kPatienceMs) {
      close(*connections.begin()->second);
    }
    patience->start(1'000);
  }

  const std::string path, content_type;
  const std::function<std::string()> page;
  uv_loop_t loop{};
  uv_tcp_t listener{};
  std::map<uint64_t, Connection*> connections;  // open ones, the oldest first
  uint64_t last_number = 0;
  bool waits = false;  // a connection waits for a place
  std::unique_ptr<Timer> patience, room;
  std::unique_ptr<Handle<uv_async_t>> stopper;
  std::vector<std::unique_ptr<SignalWatch>> signals;
};

PageServer::PageServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
PageServer::~PageServer() = default;

Result<std::unique_ptr<PageServer>> PageServer::make(const std::string& listen, std::string path,
                                                     std::string content_type,
                                                     std::function<std::string()> page) {
  const Result<sockaddr_storage> address = parse_address(listen);
  if (!address) return tl::unexpected<Error>(address.error());
  auto state = std::make_unique<State>(std::move(path), std::move(content_type), std::move(page));
  int error = uv_tcp_bind(&state->listener, reinterpret_cast<const sockaddr*>(&*address), 0);
  if (error == 0) {
    error = uv_listen(reinterpret_cast<uv_stream_t*>(&state->listener), kBacklog,
                      [](uv_stream_t* on, int failed) {
                        if (failed == 0) static_cast<State*>(on->data)->take_next();
                      });
  }
  if (error != 0) {
    return fail(listen + ": cannot listen: " + uv_strerror(error) + "; choose another address");
  }
  State& s = *state;
  s.stopper = std::make_unique<Handle<uv_async_t>>([&s] { uv_stop(&s.loop); });
  uv_async_init(&s.loop, s.stopper->get(),
                [](uv_async_t* async) { Handle<uv_async_t>::call(async->data); });
  s.room = std::make_unique<Timer>(&s.loop, [&s] {
    if (s.waits) s.take_next();
  });
  s.patience = std::make_unique<Timer>(&s.loop, [&s] { s.end_the_slow(); });
  return std::unique_ptr<PageServer>(new PageServer(std::move(state)));
}

std::string PageServer::address() const {
  sockaddr_storage name{};
  int length = sizeof name;
  uv_tcp_getsockname(&state_->listener, reinterpret_cast<sockaddr*>(&name), &length);
  char text[INET6_ADDRSTRLEN] = "";
  if (name.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(name);
    uv_ip6_name(&six, text, sizeof text);
    return '[' + std::string(text) + "]:" + std::to_string(ntohs(six.sin6_port));
  }
  const auto& four = reinterpret_cast<const sockaddr_in&>(name);
  uv_ip4_name(&four, text, sizeof text);
  return std::string(text) + ':' + std::to_string(ntohs(four.sin_port));
}

void PageServer::run() {
  signal(SIGPIPE, SIG_IGN);
  for (const int number : {SIGINT, SIGTERM}) {
    state_->signals.push_back(
        std::make_unique<SignalWatch>(&state_->loop, number, [this] { uv_stop(&state_->loop); }));
  }
  state_->patience->start(1'000);
  uv_run(&state_->loop, UV_RUN_DEFAULT);
}

void PageServer::stop() { uv_async_send(state_->stopper->get()); }

}  // namespace heddle::server
