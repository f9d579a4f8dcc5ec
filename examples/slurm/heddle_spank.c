// Slurm's sbatch, salloc and srun get --heddle-class and --heddle-memory. A task of such a job
// starts with the environment that `heddle run` would give it. Other jobs are left alone.
//
// plugstack.conf: optional /usr/lib/slurm/heddle_spank.so [heddle=/opt/heddle/bin/heddle]
//
// Whatever goes wrong on a node, the task runs, without heddle, and its standard error says so.
#include <poll.h>
#include <signal.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

SPANK_PLUGIN(heddle, 1)

static const char* program = "/opt/heddle/bin/heddle";
static char* class_given;
static char* memory_given;

// `heddle run -q` answers within a second; a file system that hangs must not hold the task.
enum { kWaitMs = 5000, kEnvironmentMax = 4 << 20 };

static int take_class(int unused, const char* text, int remote) {
  (void)unused, (void)remote;
  if (strcmp(text, "latency") != 0 && strcmp(text, "batch") != 0) {
    slurm_error("--heddle-class=%s: say --heddle-class=latency, or batch", text);
    return -1;
  }
  free(class_given);
  class_given = strdup(text);
  return 0;
}

// The form that `heddle run --memory` takes: at least 1 MiB, or more than 0 and at most 100 %.
static int is_memory(const char* text) {
  static const struct {
    const char* name;
    double least, most;
  } kUnits[] = {{"%", 0, 100},
                {"KiB", 1024, 1e6},
                {"MiB", 1, 1e6},
                {"GiB", 1. / 1024, 1e6},
                {"TiB", 1. / 1024 / 1024, 1e6}};
  double value = 0, place = 0;
  const char* at = text;
  for (; (*at >= '0' && *at <= '9') || (*at == '.' && place == 0 && at != text); ++at) {
    if (*at == '.') {
      place = 1;
    } else if (place == 0) {
      value = value * 10 + (*at - '0');
    } else {
      value += (*at - '0') * (place /= 10);
    }
  }
  for (size_t i = 0; i < sizeof kUnits / sizeof *kUnits; ++i) {
    if (strcmp(at, kUnits[i].name) == 0) {
      return value > 0 && value >= kUnits[i].least && value <= kUnits[i].most;
    }
  }
  return 0;
}

static int take_memory(int unused, const char* text, int remote) {
  (void)unused, (void)remote;
  if (!is_memory(text)) {
    slurm_error("--heddle-memory=%s: say an amount such as --heddle-memory=20GiB, 512MiB, or 25%%",
                text);
    return -1;
  }
  free(memory_given);
  memory_given = strdup(text);
  return 0;
}

int slurm_spank_init(spank_t spank, int count, char* words[]) {
  static struct spank_option options[] = {
      {"heddle-class", "latency|batch", "share the GPU by heddle, in this class", 1, 0, take_class},
      {"heddle-memory", "20GiB|25%", "most GPU memory of the job, on each GPU", 1, 0, take_memory},
  };
  for (int i = 0; i < count; ++i) {
    if (strncmp(words[i], "heddle=", 7) == 0) program = words[i] + 7;
  }
  const spank_context_t where = spank_context();
  if (where == S_CTX_SLURMD || where == S_CTX_JOB_SCRIPT) return 0;
  for (size_t i = 0; i < sizeof options / sizeof *options; ++i) {
    if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) return -1;
  }
  return 0;
}

static long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// All that `fd` gives until its end, and its length; null if that takes too long or is too much.
static char* read_all(int fd, long deadline, size_t* length) {
  char* text = malloc(kEnvironmentMax);
  for (*length = 0; text != NULL && *length < kEnvironmentMax;) {
    struct pollfd ready = {fd, POLLIN, 0};
    const long left = deadline - now_ms();
    if (left <= 0 || poll(&ready, 1, (int)left) <= 0) break;
    const ssize_t got = read(fd, text + *length, kEnvironmentMax - *length);
    if (got == 0) return text;
    if (got < 0) break;
    *length += (size_t)got;
  }
  free(text);
  return NULL;
}

// What waitpid says of `child`, which is killed if it does not end in time: -1. It is not waited for
// then: one that a file system holds does not even die.
static int status_of(pid_t child, long deadline) {
  int status = -1;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0 && now_ms() < deadline) poll(NULL, 0, 10);
  if (ended == child) return status;
  kill(child, SIGKILL);
  return -1;
}

// What `heddle run` gives a program: its environment, each entry with its zero; null if it fails.
static char* ask_heddle(char** environment, size_t* length) {
  char* words[12] = {(char*)program, "run", "--quiet"};
  int count = 3;
  if (class_given != NULL) words[count++] = "--class", words[count++] = class_given;
  if (memory_given != NULL) words[count++] = "--memory", words[count++] = memory_given;
  words[count++] = "--", words[count++] = "/usr/bin/env", words[count] = "-0";
  int ends[2];
  if (pipe(ends) != 0) return NULL;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execve(program, words, environment);
    _exit(127);
  }
  close(ends[1]);
  const long deadline = now_ms() + kWaitMs;
  char* text = child > 0 ? read_all(ends[0], deadline, length) : NULL;
  close(ends[0]);
  const int status = child > 0 ? status_of(child, text == NULL ? 0 : deadline) : -1;
  // What ends in no NUL is no answer of env's.
  if (status == 0 && text != NULL && *length > 0 && text[*length - 1] == '\0') return text;
  free(text);
  return NULL;
}

// As the job's user, in the process that becomes the task.
int slurm_spank_task_init(spank_t spank, int count, char* words[]) {
  (void)count, (void)words;
  if (class_given == NULL && memory_given == NULL) return 0;
  char** environment = NULL;
  size_t length = 0;
  char* text = NULL;
  if (spank_get_item(spank, S_JOB_ENV, &environment) == ESPANK_SUCCESS) {
    text = ask_heddle(environment, &length);
  }
  if (text == NULL) {
    slurm_spank_log("heddle: %s run did not answer; the task runs without heddle", program);
    return 0;
  }
  for (char* entry = text; entry < text + length; ++entry) {
    char* value = strchr(entry, '=');
    char* end = entry + strlen(entry);
    if (value != NULL) {
      *value = '\0';
      spank_setenv(spank, entry, value + 1, 1);
    }
    entry = end;
  }
  free(text);
  // All tasks of the job on this node share the limit, not each its own.
  uint32_t job = 0;
  if (memory_given != NULL && spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS) {
    char run[32];
    snprintf(run, sizeof run, "slurm.%u", job);
    spank_setenv(spank, "HEDDLE_RUN", run, 1);
  }
  return 0;
}
