#include "daemon/cli/daemon.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <vector>

#include "daemon/base/json.h"
#include "daemon/cli/pods.h"
#include "ipc/limits.h"
#include "ipc/socket.h"

namespace heddle::cli {
namespace {

constexpr int kConnectMs = 1'000;

Answer no_daemon(const std::string& path, int error) {
  if (error == -EACCES || error == -EPERM) {
    return {kRefused, path + ": no permission; ask an administrator, or see [daemon] mode", {}};
  }
  return {kNoDaemon,
          path + ": no daemon (" + strerror(-error) + "); start heddled, or name its socket with " +
              "--socket or " + ipc::kSocketEnv,
          {}};
}

Answer exchange(int fd, const std::string& path, const server::Request& request, int& memory,
                int patience_ms) {
  if (const int error = ipc::send_packet(fd, server::encode_request(request)); error != 0) {
    return {kFailed, path + ": cannot ask: " + strerror(-error), {}};
  }
  pollfd readable{fd, POLLIN, 0};
  if (poll(&readable, 1, patience_ms) != 1) {
    return {kFailed, path + ": the daemon does not answer; see its log", {}};
  }
  std::vector<std::byte> buffer(ipc::kReplyBytes);
  const ssize_t length = ipc::receive_packet(fd, buffer, {&memory, 1});
  if (length <= 0) {
    return {
        kFailed, path + ": the daemon hung up; see its log, or use the heddle of its release", {}};
  }
  const Result<server::Reply> reply =
      server::decode_reply({buffer.data(), static_cast<size_t>(length)});
  if (!reply) return {kFailed, path + ": " + reply.error().message, {}};
  const nlohmann::json document = parse_json(reply->json);
  if (document.is_discarded()) return {kFailed, path + ": the answer is no JSON", {}};
  if (reply->ok) return {kOk, "", document};
  const bool refused = document.value("code", "") == "refused";
  return {refused ? kRefused : kFailed, reply->error, document};
}

}  // namespace

Answer ask(const std::string& socket, const server::Request& request, int patience_ms) {
  int connection = -1, memory = -1;
  Answer answer = ask(socket, request, connection, memory, patience_ms);
  if (connection >= 0) close(connection);
  if (memory >= 0) close(memory);
  return answer;
}

Answer ask(const std::string& socket, const server::Request& request, int& connection, int& memory,
           int patience_ms) {
  std::string path = socket;
  if (path.empty()) {
    char buffer[256];
    if (ipc::default_socket_path(buffer, sizeof buffer) < 0) {
      return {kUsage, "the default socket path is too long; name one with --socket", {}};
    }
    path = buffer;
  }
  const int fd = ipc::connect_socket(path.c_str(), std::min(kConnectMs, patience_ms));
  if (fd < 0) return no_daemon(path, fd);
  connection = fd;
  return exchange(fd, path, request, memory, patience_ms);
}

Answer ask_ps(const std::string& socket) {
  constexpr int kPiecesMost = 256;  // of a daemon's 1 024 clients a piece has about a hundred
  server::Request request;
  request.kind = server::Request::Kind::kPs;
  Answer answer = ask(socket, request);
  for (int i = 0; i < kPiecesMost && answer.code == kOk; ++i) {
    nlohmann::json& clients = answer.json.at("clients");
    if (!answer.json.value("truncated", false) || clients.empty()) break;
    request.client = clients.back().at("id");
    Answer more = ask(socket, request);
    if (more.code != kOk) break;  // an older daemon: `truncated` says that there are more
    for (nlohmann::json& client : more.json.at("clients")) clients.push_back(std::move(client));
    more.json["clients"] = std::move(clients);
    answer.json = std::move(more.json);
  }
  if (answer.code == kOk) name_pods(answer.json.at("clients"));
  return answer;
}

Answer ask_for_document(const std::string& socket, server::Request::Kind kind) {
  server::Request request;
  request.kind = kind;
  int connection = -1, memory = -1;
  Answer answer = ask(socket, request, connection, memory);
  if (connection >= 0) close(connection);
  struct stat size {};
  if (memory >= 0 && fstat(memory, &size) == 0) {
    std::string text(static_cast<size_t>(size.st_size), 0);
    const ssize_t got = pread(memory, text.data(), text.size(), 0);
    answer.json = parse_json(text.substr(0, static_cast<size_t>(std::max<ssize_t>(0, got))));
  }
  if (memory >= 0) close(memory);
  if (answer.code == kOk && !answer.json.is_object())
    return {kFailed, "the daemon sent no answer; use the heddle of its release", {}};
  return answer;
}

void write_json(const nlohmann::json& document) {
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  std::cout << document.dump(2, ' ', true, kReplace) << '\n';
}

int show_error(bool as_json, const Answer& answer) {
  if (as_json) {
    write_json({{"error", answer.error}, {"exit_code", answer.code}});
  }
  std::cerr << "heddle: " << answer.error << '\n';
  return answer.code;
}

}  // namespace heddle::cli
